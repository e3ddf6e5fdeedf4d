"""The errors that reach a person, each with one exit code and one HTTP status.

    OnechipError
      UsageError            a flag, file or value on the command line is wrong
      CheckpointError       a checkpoint is missing, damaged, or of a kind that we do not serve
      CapacityError         what was asked for does not fit in this chip's memory
      EngineError           the engine failed or is not ready
      LadderError           a ladder cannot start or go on
        InstallError          an engine cannot be installed
        ClaimError            a claim does not hold
      RequestError          an HTTP request is wrong (400)
        AuthenticationError   (401)
        ForbiddenError        (403)
        NotFoundError         (404)
        QueueFullError        (429, with Retry-After)

A message is one sentence or two: it names the thing that is wrong, the value that it had, and the mend.
"""

from __future__ import annotations

from collections.abc import Sequence


class OnechipError(Exception):
    """Base of every error that is shown to a person as one sentence, without a traceback."""

    exit_code = 1
    http_status = 500
    kind = "server_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(OnechipError):
    exit_code = 2


class CheckpointError(OnechipError):
    exit_code = 3


class CapacityError(OnechipError):
    exit_code = 4


class EngineError(OnechipError):
    """Args: log: the last lines that an engine wrote before it failed, where it has a log."""

    exit_code = 5
    http_status = 503

    def __init__(self, message: str, *, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)


class LadderError(OnechipError):
    exit_code = 6


class InstallError(LadderError):
    """A peer's environment cannot be made; what was fetched is kept, and the same command goes on."""


class ClaimError(LadderError):
    exit_code = 7


class RequestError(OnechipError):
    """A request that the API refuses.

    Args:
        message: what is wrong and how to mend it.
        param: the field of the request body that is wrong, dotted (``messages[0].role``).
        code: OpenAI's machine-readable code, such as ``context_length_exceeded``.
    """

    http_status = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class AuthenticationError(RequestError):
    http_status = 401
    kind = "authentication_error"


class ForbiddenError(RequestError):
    http_status = 403
    kind = "permission_error"


class NotFoundError(RequestError):
    http_status = 404
    kind = "not_found_error"


class QueueFullError(RequestError):
    """The waiting queue is full; ``retry_after_s`` goes out as the Retry-After header."""

    http_status = 429
    kind = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message, code="queue_full")
        self.retry_after_s = retry_after_s
