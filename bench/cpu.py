"""Our engine and its peers on the CPU, in turns in one run, each figure beside the machine's own bound.

    python -m bench.cpu [--engines onechip:int4-emb4,llama.cpp:q4_0-emb4] [--out FILE]
    python -m bench.cpu --model acorn --quick

The model is a checkpoint of Gemma 4 E2B's shape with random weights on the int4 grid, so all arms have the
same 4-bit values. Engines are launched as a ladder launches them and asked by its client: prompts of exact
length, all unique, greedy, held to their output length. Measured are

    start         spawn to first token: nothing compiled before (cold), and again (warm); the checkpoint lies
                  in the system's cache
    prefill       tokens of a prompt over the time to its first token, one token out
    TTFT          of one request of 128 tokens
    decode        tokens a second while all requests decode: from the last first token to the first last one
    memory        peak: the most that was resident from start to end, pages of mapped files included, which
                  the system may take back; own: what is not backed by a file, after all loads

A bound is the bytes of all weights over the read bandwidth, or the operations over the peak of the
instruction for them, whichever takes longer (bench/cpu_work.py, bench/bounds.py). If the arms fit into memory
together they stay up and take turns, load by load; otherwise they are started in turns. About 20 minutes for
the two default arms; --repeats 10 for a claim.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from bench import bounds, cpu_report, cpu_work
from bench.bounds import Bounds, BoundsError
from bench.cpu_report import Measure
from bench.cpu_side import Load, Side, say, sides

from onechip.errors import OnechipError
from onechip.ladder import arms
from onechip.ladder.checkpoint import model_facts
from onechip.ladder.machine import busy_note, machine, ourselves
from onechip.ladder.plan import Plan
from onechip.ladder.records import CellRecord, RequestRecord
from onechip.ladder.state import Rest
from onechip.ladder.timing import ttft_ms
from onechip.models.config import read_config
from onechip.models.source import resolve_model

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"
E2B = RESULTS / "e2b-w4a16"
ENGINES = "onechip:int4-emb4,llama.cpp:q4_0-emb4"
LEVELS = (1, 4, 16, 64)
PROMPTS = (512, 4096)
TTFT_TOKENS = 128
DECODE_IN = 32
"""Tokens of a prompt before decode: few, so that the last request's prompt is read soon."""
SPARE_BYTES = 2 << 30
"""Left free when engines stay up together, and a quarter of what they held alone besides."""
IDLE_SHARE = 0.05
"""Of one core that an engine may use while another is measured."""
LOWER = (("start, cold", "s"), ("start, warm", "s"), ("peak memory", "GiB"), ("own memory at the end", "GiB"))


@dataclass(frozen=True)
class Job:
    """A load and the figure that it gives."""

    measure: Measure
    load: Load


def tokens_out(requests: int) -> int:
    """Of each request: enough that all of them decode together for most of the time."""
    return 64 if requests <= 2 else 48 if requests <= 8 else 32


def jobs(levels: Sequence[int], prompts: Sequence[int]) -> list[Job]:
    """All loads of a round, in order."""
    found = [Job(Measure(f"prefill, {size} tokens", "tok/s", True), Load(1, size, 1)) for size in prompts]
    found.append(Job(Measure(f"TTFT, {TTFT_TOKENS} tokens", "ms", False), Load(1, TTFT_TOKENS, 1)))
    for level in levels:
        name = f"decode, {level} request{'s' * (level > 1)}"
        found.append(Job(Measure(name, "tok/s", True), Load(level, DECODE_IN, tokens_out(level))))
    return found


def schedule(arms: int, turns: int, loads: int, together: bool) -> Iterator[tuple[int, int, int]]:
    """(round, load, arm) in order: A B, B A, ...

    Together: load by load, so that both arms meet the same machine. Otherwise an arm does all loads of a
    round before the next is started, and begins the round that follows.
    """
    for turn in range(turns):
        order = list(range(arms)) if turn % 2 == 0 else list(reversed(range(arms)))
        if together:
            for load in range(loads):
                swapped = order if load % 2 == 0 else order[::-1]
                yield from ((turn, load, arm) for arm in swapped)
        else:
            yield from ((turn, load, arm) for arm in order for load in range(loads))


def decode_tok_s(records: Sequence[RequestRecord]) -> float | None:
    """Tokens a second of all requests while every one of them decodes; None if there is no such time."""
    if not records or any(len(record.event_ns) < 2 for record in records):
        return None
    begin = max(record.event_ns[0] for record in records)
    end = min(record.event_ns[-1] for record in records)
    if end <= begin:
        return None
    events = (zip(record.event_ns, record.event_tokens, strict=True) for record in records)
    tokens = sum(count for event in events for ns, count in event if begin < ns <= end)
    return tokens * 1e9 / (end - begin)


def figure(job: Job, record: CellRecord) -> float | None:
    """What a load says of its measure; None if it says nothing."""
    if job.load.tokens_out > 1:
        return decode_tok_s(record.requests)
    first = ttft_ms(record.requests[0])
    if first is None or job.measure.unit == "ms":
        return first
    return job.load.tokens_in * 1e3 / first


class Bench:
    """All arms, and what was measured of them."""

    def __init__(self, found: list[Side], listed: list[Job], turns: int) -> None:
        self.sides = found
        self.jobs = listed
        self.turns = turns
        self.start_cold, self.start_warm, self.peak, self.own = (
            Measure(name, unit, False) for name, unit in LOWER
        )
        self.notes: list[str] = []
        self._held: dict[str, int] = {}

    @property
    def measures(self) -> list[Measure]:
        loads = [job.measure for job in self.jobs]
        return [*loads, self.start_cold, self.start_warm, self.peak, self.own]

    @property
    def alive(self) -> list[Side]:
        return [side for side in self.sides if side.failed is None]

    def starts(self) -> None:
        """Each arm alone on the machine: once cold, then warm as often as there are rounds."""
        for turn in range(-1, self.turns):
            for side in self.alive if turn % 2 else self.alive[::-1]:
                cold = turn < 0
                say(f"{side.arm.name}: {'cold' if cold else 'warm'} start")
                with _failing(side):
                    seconds = side.start(cold=cold)
                    (self.start_cold if cold else self.start_warm).add(side.arm.name, max(turn, 0), seconds)
                    self._held[side.arm.name] = side.memory().peak
                side.stop()

    def loads(self) -> None:
        """All rounds of all loads, after one round of warm-up."""
        together = self._fit_together()
        if not together and len(self.alive) > 1:
            self.notes.append("The engines do not fit into memory together and were started in turns.")
        order = schedule(len(self.sides), self.turns, len(self.jobs), together)
        for turn, number, arm in order:
            side, job = self.sides[arm], self.jobs[number]
            if side.failed is None:
                with _failing(side):
                    self._ensure(side, together)
                    self._load(side, job, turn)
        for side in self.sides:
            self._leave(side)

    def _fit_together(self) -> bool:
        needed = sum(self._held.get(side.arm.name, 0) for side in self.alive) * 1.25 + SPARE_BYTES
        return needed < psutil.virtual_memory().available

    def _ensure(self, side: Side, together: bool) -> None:
        """The arm is up, and no other one unless they fit together."""
        if side.running:
            return
        if not together:
            for other in self.sides:
                self._leave(other)
        say(f"{side.arm.name}: starting")
        side.start()
        most = max(job.load.requests for job in self.jobs)
        say(f"{side.arm.name}: warm-up")
        side.run(Load(1, DECODE_IN, 4), "warm-up")
        side.run(Load(most, DECODE_IN, 4), "warm-up of all")

    def _leave(self, side: Side) -> None:
        """Keeps what the engine held, and stops it."""
        if side.running:
            memory, name = side.memory(), side.arm.name
            turn = len(self.peak.values.get(name, {}))
            if memory.peak:
                self.peak.add(name, turn, memory.peak / 2**30)
                self.own.add(name, turn, memory.own / 2**30)
            side.stop()

    def _load(self, side: Side, job: Job, turn: int) -> None:
        others = [other for other in self.alive if other is not side and other.running]
        before = [other.cpu_s() for other in others]
        record = side.run(job.load, f"{turn}")
        span_s = _span_s(record)
        where = f"{side.arm.name}, {job.measure.name}, round {turn + 1}"
        for other, used_s in zip(others, before, strict=True):
            share = (other.cpu_s() - used_s) / span_s if span_s else 0.0
            if share > IDLE_SHARE:
                self.notes.append(f"{where}: {other.arm.name} used {share:.0%} of a core meanwhile.")
        value = figure(job, record)
        if record.invalid or value is None:
            why = " ".join(record.invalid) or "it gave no figure."
            self.notes.append(f"{where} is not counted: {why}")
            say(f"{where}: not counted: {why}")
            return
        job.measure.add(side.arm.name, turn, value)
        say(f"{where}: {cpu_report.number(value)} {job.measure.unit} ({span_s:.1f} s)")


def _span_s(record: CellRecord) -> float:
    sent = min(request.sent_ns for request in record.requests)
    return (max(request.end_ns for request in record.requests) - sent) / 1e9


@contextlib.contextmanager
def _failing(side: Side) -> Iterator[None]:
    """Around what an engine does: if it fails, its arm is measured no more, and the others are."""
    try:
        yield
    except OnechipError as error:
        side.failed = error.message
        say(f"{side.arm.name} failed: {error.message}")
        side.stop()


def set_bounds(bench: Bench, model: Path, peak: Bounds) -> None:
    """Gives each measure that has bounds those of its arms."""
    config = read_config(model)
    for side in bench.sides:
        work = cpu_work.Work(config, cpu_work.precision(side.arm))
        for job in bench.jobs:
            if job.measure.higher:
                decoding = job.load.tokens_out > 1
                job.measure.bounds[side.arm.name] = (
                    work.decode_tok_s(peak, job.load.requests)
                    if decoding
                    else work.prefill_tok_s(peak, job.load.tokens_in)
                )


def page(bench: Bench, options: argparse.Namespace, peak: Bounds, drift: str) -> str:
    """All that was found."""
    here, ours = machine(), ourselves()
    names = [side.arm.name for side in bench.sides]
    mine = [side.arm.name for side in bench.sides if side.arm.engine == "onechip"]
    peers = [name for name in names if name not in mine]
    notes = [*bench.notes, *(f"{side.arm.name}: {note}" for side in bench.sides for note in side.notes)]
    notes += [f"{side.arm.name} failed: {side.failed}" for side in bench.sides if side.failed is not None]
    remarks = [f"{side.arm.name}: {side.arm.remark}." for side in bench.sides if side.arm.remark]
    parts = [
        f"# {options.model} on {here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB",
        f"`python -m bench.cpu {' '.join(sys.argv[1:])}`, onechip {ours['commit'][:18]}, {here['system']};"
        f" {bench.turns} rounds. Figures are medians; a spread is the largest over the smallest, less 1; then"
        " the share of the bound.",
        "\n".join(cpu_report.table(bench.measures, names)),
        "## Times better than the best peer",
        "Of rounds that both have: median (least to most).",
        "\n".join(cpu_report.ratios(bench.measures, mine, peers) or ["There is nothing to compare."]),
        "## Bounds",
        "\n".join(bounds.table(peak)),
        drift,
        *(["## Notes", "\n".join(f"* {note}" for note in [*remarks, *notes])] if remarks or notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=str(E2B), help="acorn or a checkpoint; default: E2B's shape")
    parser.add_argument("--engines", default=ENGINES, help="as `onechip ladder --engines`")
    parser.add_argument("--levels", type=_numbers, default=LEVELS, help="requests at once, in decode")
    parser.add_argument("--prompts", type=_numbers, default=PROMPTS, help="tokens, in prefill")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--quick", action="store_true", help="one round, levels 1 and 4, a prompt of 512")
    parser.add_argument("--out", type=Path, help="a file for the page, which is printed too")
    options = parser.parse_args()
    if options.quick:
        options.levels, options.prompts, options.repeats = (1, 4), (512,), 1
    return options


def _plan(options: argparse.Namespace, listed: Sequence[Job]) -> Plan:
    """What engines are told: how many requests, and how long the longest is."""
    found = arms.check_ready(arms.parse(options.model, options.engines, ()))
    levels = tuple(sorted({job.load.requests for job in listed}))
    shapes = tuple((job.load.tokens_in, job.load.tokens_out) for job in listed)
    return Plan(options.model, found, ("start", "sweep"), levels=levels, shapes=shapes)


def _fitting(options: argparse.Namespace, model: Path) -> list[int]:
    """The prompts that the model's context holds."""
    context = model_facts(model).context
    return [size for size in options.prompts if context is None or size + 1 <= context]


def run(options: argparse.Namespace) -> None:
    """Everything.

    Raises:
        OnechipError, BoundsError, ValueError: it cannot be run like that, or not here.
    """
    if options.model == str(E2B) and not E2B.exists():
        RESULTS.mkdir(exist_ok=True)
        synth = ["synth", str(E2B), "--shape", "e2b", "--dtype", "w4a16"]
        subprocess.run([sys.executable, "-m", "onechip.cli", *synth], check=True)
    model = resolve_model(options.model)
    prompts = _fitting(options, model)
    listed = jobs(options.levels, prompts)
    bench = Bench(list(sides(_plan(options, listed), RESULTS / "cpu")), listed, options.repeats)
    left_out = sorted(set(options.prompts) - set(prompts))
    bench.notes += [f"The model's context does not hold a prompt of {size} tokens." for size in left_out]
    bench.notes += [note] if (note := busy_note(Rest.now().busy_share)) is not None else []
    say("measuring the machine")
    before = bounds.measure()
    set_bounds(bench, model, before)
    try:
        bench.starts()
        bench.loads()
    finally:
        for side in bench.sides:
            side.stop()
    say("measuring the machine again")
    after = bounds.measure()
    peak = bounds.best(before, after)
    set_bounds(bench, model, peak)
    text = page(bench, options, peak, bounds.drift(before, after))
    print(text)
    if options.out is not None:
        options.out.write_text(text)


def main() -> None:
    options = _options()
    try:
        run(options)
    except (OnechipError, BoundsError, ValueError) as error:
        raise SystemExit(f"bench.cpu: {error}") from None


if __name__ == "__main__":
    main()
