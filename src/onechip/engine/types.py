"""What goes into the engine (Request) and what comes out of it (Event)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Progress = Callable[[str, float], None]
"""Called with a stage's name and the share of the whole start that is done, 0..1."""

Dtype = Literal["auto", "bf16", "f32", "w8a16", "w8a8", "w4a16", "w4a8"]
"""Precision that weights are served in: as stored, or dense bf16 or f32, or linears in int8 or int4, whose
products take activations in bf16 or rounded to int8 (in groups of 32). "auto" takes int8 where the kernels
have it.
"""

KernelsWish = Literal["auto", "xla"]
"""Who multiplies: the fastest kernels for the chip, or plain JAX."""

FinishReason = Literal["stop", "length", "cancelled", "error"]

NO_TOKEN = -1
"""What the device chooses where a row's logits are not numbers."""

MAX_STOP_IDS = 16
"""How many stop token ids one request may have, the model's own included (a row of the stop-id array)."""

MAX_LOGIT_BIAS = 1024
"""How many tokens `logit_bias` may name."""

MAX_LOGPROBS = 20
"""How many of the most likely tokens may be asked for."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine is started with.

    Attributes:
        model: checkpoint folder.
        context: tokens of one request, prompt and output together; None lets the memory plan choose.
        max_requests: requests that run at once; None lets the memory plan choose, 64 at the most.
        dtype: see Dtype.
        kernels: see KernelsWish.
        cache_dir: where compiled programs are kept; None keeps none.
        max_waiting: requests that may wait for a slot.
        reuse: prompts that begin as earlier ones did are not computed again so far.
    """

    model: Path
    context: int | None = None
    max_requests: int | None = None
    dtype: Dtype = "auto"
    kernels: KernelsWish = "auto"
    cache_dir: Path | None = None
    max_waiting: int = 1024
    reuse: bool = True


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when a request ends.

    Attributes:
        temperature: 0 is greedy; then top_k, top_p, min_p and seed have no effect.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of most likely tokens whose probability reaches top_p; 1 keeps all.
        min_p: drop tokens less likely than min_p times the most likely one; 0 drops none.
        seed: noise is a function of (seed, position) alone. 0 <= seed < 2**32.
        max_tokens: output tokens at the most, the stop token included.
        min_tokens: stop ids cannot be chosen before this many output tokens.
        stop_token_ids: end the request when one of these is chosen (besides the model's own).
        ignore_eos: the model's own stop ids do not end the request.
        frequency_penalty: is taken from a token's logit for each time that the answer has it already.
        presence_penalty: is taken from a token's logit once if the answer has it already.
        repetition_penalty: divides positive logits of tokens that prompt or answer have already, and
            multiplies negative ones; > 0, 1 does nothing.
        logit_bias: (token id, what is added to its logit), after the penalties.
        logprobs: tell each token's log-probability and those of so many most likely tokens; None tells none.

    Penalties and bias change the logits after the softcap, before the temperature. Log-probabilities are of
    what the temperature makes of that, before any token is dropped or forbidden; at 0 the temperature is
    taken as 1. One between 0 and 1e-6 is taken as 1e-6.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before a token is chosen."""
        penalties = (self.frequency_penalty, self.presence_penalty, self.repetition_penalty)
        return bool(self.logit_bias) or penalties != (0.0, 0.0, 1.0)


class Guide(Protocol):
    """Says which tokens one answer may go on with. It belongs to one request; the engine's thread alone calls
    it, `forbid` before each token and `take` with each that came.
    """

    def forbid(self, allowed: NDArray[np.uint32]) -> None:
        """Clear the bits of tokens that may not come next.

        Args:
            allowed: [ceil(vocabulary / 32)]; token t is bit t % 32 of word t // 32. Where no bit of a token
                stays, the request ends with an error.

        Raises:
            RequestError: the guide cannot say; the request then ends with this error.
        """

    def take(self, token: int) -> None:
        """The answer goes on with this token."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to continue.

    Attributes:
        id: unique among the requests that are waiting or running.
        prompt: token ids, BOS included, at least one.
        guides: every one of them must allow a token.
        scored: the prompt is not gone on with; its tokens from the second on come as if they were the answer,
            with their log-probabilities at temperature 1 (sampling.logprobs; the rest of `sampling` and
            `guides` mean nothing).
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    guides: tuple[Guide, ...] = ()
    scored: bool = False

    @property
    def steered(self) -> bool:
        """Whether the host has a say in each token, or wants to know more of it than its id."""
        if self.scored:
            return False
        return bool(self.guides) or self.sampling.adjusts or self.sampling.logprobs is not None


@dataclass(frozen=True, slots=True)
class Logprobs:
    """What the model thought where it chose one token; see SamplingParams.logprobs.

    Attributes:
        chosen: log-probability of the token that was chosen.
        rank: of that token among all, 1 is the likeliest; of equally likely ones all have the first's.
        top: (token id, log-probability) of the most likely ones, first the likeliest.
    """

    chosen: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """What one window of decode steps gave one request.

    Attributes:
        request_id: the request it belongs to.
        tokens: new output token ids, in order; the last is the stop token if finish is "stop".
        finish: why the request ended, None while it runs. Exactly one event of a request has it: the last.
        cached_tokens: prompt tokens that were not computed again.
        error: one sentence, with finish "error".
        refused: the error is the request's own; the same request would meet it again.
        logprobs: one for each token, if they were asked for.
    """

    request_id: str
    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0
    error: str | None = None
    logprobs: tuple[Logprobs, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for /metrics; counters never go down.

    Attributes:
        running: requests that hold a slot.
        waiting: requests in the queue.
        cache_used: share of the slots' token capacity in use, 0..1.
        prompt_tokens, output_tokens, finished: totals since the start; prompt tokens that were computed.
        prefix_queries, prefix_hits: prompt tokens that were looked for in the cache, and that were found.
        compiles_after_warmup: programs compiled after `ready`; anything but 0 is a bug.
    """

    running: int
    waiting: int
    cache_used: float
    prompt_tokens: int
    output_tokens: int
    finished: int
    compiles_after_warmup: int
    prefix_queries: int = 0
    prefix_hits: int = 0
