"""The real client on a real socket against all that engines stream: figures exact to the nanosecond."""

from __future__ import annotations

import pytest

from onechip.ladder import timing
from onechip.ladder.client import Deadlines, Load, run_load
from onechip.ladder.records import RequestRecord
from onechip.ladder.stream import read_exchange
from onechip.ladder.target import Target
from onechip.ladder.validity import failures, reasons
from tests.ladder.zoo import content, counts, faults, framing
from tests.ladder.zoo.case import Case, Expected
from tests.ladder.zoo.engine import MS, scripted

CASES = content.CASES | counts.CASES | framing.CASES | faults.CASES
DEADLINES = Deadlines(stall_s=60, request_s=600, load_s=600)
PROMPT_TOKENS, SHARED_TOKENS = 7, 2
QUIET = {"loop_lag_p99_ms": 0.1, "cpu_share": 0.1, "late_sends": 0.0}


def count(text: str) -> int:
    """Our own tokenizer: a token a word."""
    return len(text.split())


def ask(case: Case) -> tuple[Load, list[RequestRecord]]:
    with scripted(case.answers) as engine:
        target = Target("127.0.0.1", engine.port)
        payloads = [target.request("/v1/completions", {"prompt": f"{n}"}) for n in range(len(case.expected))]
        load = run_load(target, payloads, 1, DEADLINES)
    asked = (PROMPT_TOKENS, case.asked) if case.asked is not None else (None, None)
    blank = [RequestRecord(n, "", *asked) for n in range(len(payloads))]
    return load, [read_exchange(*pair, count) for pair in zip(load.exchanges, blank, strict=True)]


def figures(record: RequestRecord) -> Expected:
    """A record in the words of a case."""
    return Expected(
        at=tuple((ns - record.sent_ns) / MS for ns in record.event_ns),
        tokens=tuple(record.event_tokens),
        source=record.extra.get("tokens_from", "one each"),
        gaps=tuple(timing.inter_token_ms(record)),
        prompt=record.prompt_tokens,
        output=record.output_tokens,
        cached=record.cached_tokens,
        end=(record.end_ns - record.sent_ns) / MS,
        finish=record.finish,
        text=record.text,
        reasoning=record.extra.get("reasoning"),
        calls=record.extra.get("tool_calls"),
        error=record.error,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_figures_are_exact(name: str) -> None:
    case = CASES[name]
    load, records = ask(case)
    assert [figures(record) for record in records] == list(case.expected)
    assert [timing.ttft_ms(record) for record in records] == [
        expected.at[0] if expected.at else None for expected in case.expected
    ]
    judged = reasons(records, QUIET, SHARED_TOKENS) if case.asked is not None else failures(records)
    assert len(judged) == len(case.invalid)
    assert all(reason.startswith(wanted) for reason, wanted in zip(judged, case.invalid, strict=True))
    assert load.client["reconnects"] == case.reconnects
