"""Every rule that makes a cell INVALID, triggered over HTTP by an engine that is well otherwise.

One ladder of one arm a rule; each reason stands in the finished report, and no other cell has one. The client
has the engines' clock, on which only what they do takes time.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import cast
from zlib import crc32

import msgspec
import pytest

from onechip.ladder.canary import Canary, Reading
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.client import Connection
from onechip.ladder.engines import ENGINES
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.plan import Limits, Plan
from onechip.ladder.records import Arm, CellRecord
from onechip.ladder.report import write_report
from onechip.ladder.target import Target
from tests.ladder import sick_engine
from tests.ladder.busy import reasons
from tests.ladder.canaries import Scripted
from tests.ladder.clocks import Clock
from tests.ladder.mock_engine import serving
from tests.ladder.sick_engine import Illness, SickEngine
from tests.ladder.whole_ladders import here

RULES: dict[str, tuple[Illness, str]] = {
    "failed": (Illness("error"), "1 of 4 requests failed: "),
    "stalled": (Illness("stall"), "1 of 4 requests failed: stalled: no byte for 3 s."),
    "prompt": (
        Illness("prompt"),
        "1 of 4 requests had another prompt length: asked for 24 prompt tokens, got 25.",
    ),
    "output": (
        Illness("short"),
        "1 of 4 requests had another output length: asked for 6 output tokens, got 5.",
    ),
    "compiled, counted": (
        Illness("compile", says="metrics"),
        "The engine compiled during the measurement: 1 programs by its own counter.",
    ),
    "compiled, logged": (
        Illness("compile", says="log"),
        "The engine compiled during the measurement; its log says: Compiling jit(decode) for shape [2]",
    ),
    "compiled in silence": (
        Illness("compile", at=5),
        "The engine stood still, as when it compiles: for 1.00",
    ),
    "restarted": (
        Illness("restart", says="metrics"),
        "The engine was restarted during the measurement: its process_start_time_seconds changed.",
    ),
    "cached, by usage": (
        Illness("hit", says="usage"),
        "1 of 4 requests hit the engine's prefix cache: 23 prompt tokens came from the cache.",
    ),
    "cached, counted": (
        Illness("hit", says="metrics"),
        "The cell hit the engine's prefix cache: by its own counter 23 prompt tokens came from it, where 4"
        " prompts share 20 at the most.",
    ),
}
CANARY = (
    "The chip canary moved: its fixed matrix product took 2000 µs before and 2120 µs after (+6.0%, limit 5%)."
)
HELD_S = 0.015
"""Its loop is looked at every 5 ms, so that the first look in each hold is 10 ms late at the least."""
HELD_UP = "The client was the bottleneck: p99 of its loop lag was "
KNOWN = "Its prompts seem to be in the engine's prefix cache: one of their series that this cell does"
LAUNCHED = "compiled, logged"
"""The one whose log the ladder must have."""
CELLS = (("24/6", 1, 0), ("24/6", 2, 0), ("24/6", 1, 1), ("24/6", 2, 1))
"""Shape, level, repeat, in order; each has two requests a level, so that the fourth is in the second."""


class Words:
    """A tokenizer of one token a word."""

    noise = True

    def encode(self, text: str) -> list[int]:
        return [crc32(word.encode()) for word in text.split()]


def run(out: Path, arms: tuple[Arm, ...], bird: Canary) -> list[CellRecord]:
    """A ladder of job `sweep`."""
    plan = Plan(
        "none",
        arms,
        jobs=("sweep",),
        levels=(1, 2),
        shapes=((24, 6),),
        repeats=2,
        waves=2,
        least_cell_s=0,
        limits=Limits(stall_s=3, cool_s=0),
    )
    return here(out, plan, cast(TokenCounter, Words()), bird)[1]


def url_arm(name: str, port: int) -> Arm:
    return Arm(name, "openai", "none", url=f"http://127.0.0.1:{port}/v1")


def shown(out: Path) -> list[str]:
    """Both reports as a reader sees their text."""
    return [
        html.unescape((out / name).read_text()).replace("\\", "") for name in ("report.md", "report.html")
    ]


def _launch(start: Start) -> Launch:
    root = str(Path(__file__).parents[2])
    return Launch(
        [sys.executable, sick_engine.__file__, str(start.port), *start.arm.flags], {"PYTHONPATH": root}
    )


class _Slow:
    """A client for which each piece of an answer from this port costs HELD_S of its core."""

    def __init__(self, port: int, patch: pytest.MonkeyPatch) -> None:
        self.port = port
        self._arrived = Connection.data_received
        patch.setattr(Connection, "data_received", lambda connection, data: self.arrived(connection, data))

    def arrived(self, connection: Connection, data: bytes) -> None:
        self._arrived(connection, data)
        assert connection._transport is not None
        if connection._transport.get_extra_info("peername")[1] == self.port:
            end = time.perf_counter() + HELD_S
            while time.perf_counter() < end:
                pass


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[CellRecord]]]:
    """A healthy arm, one while which the canary moves, one for which the client is slow, one for each rule,
    and two that are the same server, which keeps prompts.

    The canary falls by 6 % in the first arm's second cell, and by 4 % in its last.
    """
    was, less, least = Reading(0.001, 0.002), Reading(0.001, 0.00212), Reading(0.00104, 0.00212)
    bird = Scripted([was, was, was, less, less, less, less, less, less, least])
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENGINES, "sick", Engine("sick", "", {"": Variant()}, lambda: "1", _launch))
        patch.setattr("onechip.ladder.folder._hashes", lambda plan: {})
        patch.setattr("onechip.ladder.launcher.Launcher._weights", lambda self: Path())

        clock = Clock()
        stack.enter_context(clock.fitted())

        def by_url(name: str, illness: Illness) -> Arm:
            return url_arm(name, stack.enter_context(serving(SickEngine(illness, clock))).port)

        arms = [by_url(name, Illness()) for name in ("canary", "well", "held up")]
        _Slow(Target.parse(arms[-1].url or "").port, patch)
        for name, (illness, _) in RULES.items():
            flags = (msgspec.json.encode(asdict(illness)).decode(),)
            arms.append(Arm(name, "sick", "none", flags) if name == LAUNCHED else by_url(name, illness))
        server = stack.enter_context(serving(SickEngine(Illness("memory"), clock, read_s=0.003)))
        arms += [url_arm(name, server.port) for name in ("asked first", "asked again")]
        out = tmp_path_factory.mktemp("invalid") / "out"
        records = run(out, tuple(arms), bird)
        write_report(out)
        yield out, records


def of(ladder: tuple[Path, list[CellRecord]], name: str) -> list[CellRecord]:
    """An arm's cells, which are whole and in order."""
    own = [record for record in ladder[1] if record.cell.arm == name]
    assert [(r.cell.variant, r.cell.level, r.cell.repeat) for r in own] == list(CELLS)
    return own


@pytest.mark.parametrize("name", RULES)
def test_each_rule(ladder: tuple[Path, list[CellRecord]], name: str) -> None:
    sentence, own = RULES[name][1], of(ladder, name)
    assert [any(sentence in reason for reason in record.invalid) for record in own] == [0, 1, 0, 0]
    assert [reasons(record, sentence) for record in own] == [[]] * 4
    assert all(sentence in text for text in shown(ladder[0]))


def test_a_healthy_arm_among_them_is_valid(ladder: tuple[Path, list[CellRecord]]) -> None:
    assert [reasons(record) for record in of(ladder, "well")] == [[]] * 4


def test_a_canary_that_moved(ladder: tuple[Path, list[CellRecord]]) -> None:
    own = of(ladder, "canary")
    assert [reasons(record) for record in own] == [[], [CANARY], [], []]
    assert own[0].measured["canary_copy_before_s"] == 0.001
    assert own[-1].measured["canary_copy_after_s"] == 0.00104
    assert all(CANARY in text for text in shown(ladder[0]))


def test_a_client_that_is_held_up(ladder: tuple[Path, list[CellRecord]]) -> None:
    assert all(any(HELD_UP in reason for reason in record.invalid) for record in of(ladder, "held up"))
    assert all(HELD_UP in text for text in shown(ladder[0]))


def test_prompts_that_a_server_knows_already(ladder: tuple[Path, list[CellRecord]]) -> None:
    """It says nowhere that it keeps prompts, and another arm asked them before."""
    assert [reasons(record) for record in of(ladder, "asked first")] == [[]] * 4
    assert all(any(KNOWN in reason for reason in record.invalid) for record in of(ladder, "asked again"))
    assert all(KNOWN in text for text in shown(ladder[0]))
