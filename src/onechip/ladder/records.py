"""What a ladder stores: a cell is named by what defines it, and a record holds its raw data.

Everything in a report is computed from these records alone. Times are `time.perf_counter_ns` values of the
process that ran the ladder, so only differences within one cell have a meaning; `started_at` is wall clock.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

TIMING_VERSION = 1
"""Version of the timing definitions (ladder/timing.py); written into every cell, raised with each change."""

JobName = Literal["start", "one", "sweep", "acc"]


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine with its weights and flags: a column of the report.

    Attributes:
        name: how it is called in tables, unique in a ladder ("onechip bf16").
        engine: a name from ladder/engines ("onechip", "openai").
        model: folder, .gguf file, hub id, or "acorn".
        flags: extra command line for the engine, its variant's before the user's.
        url: base URL of a server that is already running (engine "openai").
        form: of the checkpoint made from `model` for it (weights.FORMS); "" is `model` as it is.
        remark: what a reader must know of its numbers; "" if nothing.
    """

    name: str
    engine: str
    model: str
    flags: tuple[str, ...] = ()
    url: str | None = None
    form: str = ""
    remark: str = ""


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Engine x job x level x repeat: the unit that is measured, journaled and resumed.

    Attributes:
        arm: name of the arm.
        job: start, one, sweep, acc.
        variant: what is run inside the job: "cold"/"warm" (start), "alone"/"four" (one), "512/128" (sweep:
            input/output tokens as run), the question set (acc: "acorn-problems", "acorn-calls", "gsm8k",
            "bfcl").
        level: concurrent requests.
        repeat: 0-based; in acc the asking. There a cell is one block of questions; blocks of a set differ in
            `definition` alone.
        definition: hash of everything else that defines the work (prompt set, lengths, limits, scorer
            version).
        block: in a comparison of two arms, the place of its start in the order A B B A A B B A ..., 1-based;
            0 outside of these blocks. Blocks 4n+1 to 4n+4 belong together.
    """

    arm: str
    job: JobName
    variant: str
    level: int
    repeat: int
    definition: str
    block: int = 0

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the cell's JSON."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


class RequestRecord(msgspec.Struct, forbid_unknown_fields=True):
    """Raw data of one request.

    Attributes:
        index: position in the cell's order of sending, 0-based.
        prompt_sha256: of the body's prompt or messages, as sent.
        asked_prompt_tokens, asked_output_tokens: the contract; None where the job fixes no length.
        sent_ns: the request's first byte was sent.
        event_ns, event_tokens: time stamps of content events, and how many tokens each carried (parallel
            lists).
        end_ns: the stream ended.
        prompt_tokens, output_tokens, cached_tokens: the engine's final usage, None where it sent none.
        counted_tokens: our own tokenizer's count of the text; None where the tokenizer is unknown.
        finish: the engine's finish_reason.
        text: generated text (reasoning and tool calls stand in `extra`).
        error: one sentence if the request failed, None otherwise.
        extra: what only some requests have:
            tokens_from: how `event_tokens` is known: "usage" (the engine counts in every event), "token ids",
                "one each" (as many events as tokens), "text" (spread by length: an estimate).
            count_mismatch: one sentence, where the counts of output tokens contradict each other.
            reasoning: reasoning text. tool_calls: list of {"name", "arguments"}, arguments as the raw string.
            question: id of the question (acc) or number of the prompt, 0-based (one).
            asked, expected: text of the question, and the right answer as a string (acc).
            answers, scores: scorer name -> answer it read (None: unparsed), scorer name -> bool (acc).
            correct: the headline scorer's verdict (acc).
    """

    index: int
    prompt_sha256: str
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    sent_ns: int = 0
    event_ns: list[int] = []
    event_tokens: list[int] = []
    end_ns: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    counted_tokens: int | None = None
    finish: str | None = None
    text: str = ""
    error: str | None = None
    extra: dict[str, Any] = {}


class CellRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One finished cell, as it stands in the journal.

    Attributes:
        cell: what was measured.
        started_at: wall clock, ISO 8601 UTC.
        timing_version: TIMING_VERSION at the time.
        requests: raw data of each request.
        invalid: reasons, each one sentence; empty means valid.
        client: the client's own cost, to tell who was the bottleneck: loop_lag_p50_ms, _p99_ms, _max_ms;
            cpu_share (of one core) and cpu_us_per_arrival, of its whole process; late_sends and
            worst_send_ms, after a slot was free; reconnects, connections opened after the first send.
        measured: figures that come from outside requests: start stretches in seconds (spawn_to_port_s,
            port_to_healthy_s, healthy_to_token_s, total_s), resident_bytes and device_bytes after it; what
            the cell took (meters.sampler.Sampler.end: peaks of memory, energy). Missing means not available,
            never a guess.
    """

    cell: Cell
    started_at: str
    timing_version: int = TIMING_VERSION
    requests: list[RequestRecord] = []
    invalid: list[str] = []
    client: dict[str, float] = {}
    measured: dict[str, float] = {}
