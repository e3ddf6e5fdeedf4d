"""A results folder on a full disk: the system's error in, one sentence that says how to go on out."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from onechip.errors import LadderError

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def writing(path: Path, folder: Path) -> Iterator[None]:
    """Around everything that writes into a results folder.

    Args:
        path: what is written.
        folder: the results folder, to go on with.

    Raises:
        LadderError: the disk, or the user's share of it, is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise LadderError(
            f"The disk is full ({error.strerror}): {path} could not be written. What was measured before is"
            f" kept. Make room, then go on with: onechip ladder resume {folder}"
        ) from None
