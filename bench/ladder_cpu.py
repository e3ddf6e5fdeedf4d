"""Every engine that can be installed on this machine, on one checkpoint, in one ladder -> docs/ladder-cpu.md.

    python bench/ladder_cpu.py acorn      # the model in the package; about half an hour
    python bench/ladder_cpu.py e2b        # random weights of Gemma 4 E2B's shape; about an hour, 17 GiB
    python bench/ladder_cpu.py greedy     # acorn's greedy text from each engine in float32, against ours
    python bench/ladder_cpu.py write      # the page, from the results that are there

Engines that are missing are installed first. A ladder that was interrupted goes on where it stopped. Results
stay in bench-results/, where `onechip ladder report` finds them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench-results"
PAGE = ROOT / "docs" / "ladder-cpu.md"
ONECHIP = [sys.executable, "-m", "onechip.cli"]
TABLES = ("Scores", "Paired by question", "What each engine can do, found by asking", "INVALID cells", "Arms")
"""Of a ladder's report.md, those that go into the page below "Who wins what"."""
MEDALS = "Who wins what"


@dataclass(frozen=True)
class Bench:
    """One ladder of the page.

    Attributes:
        title, about: heading, and what a reader must know of the model.
        model: for the command line; a folder that `shape` makes if it is not there.
        engines: in the words of --engines; those of engines that do not run here are left out.
        options: of `onechip ladder run`.
        shape: of `onechip synth`, None for a model that exists.
    """

    title: str
    about: str
    model: str
    engines: tuple[str, ...]
    options: tuple[str, ...]
    shape: tuple[str, ...] | None = None


BENCHES = {
    "acorn": Bench(
        title="acorn, 1.6 million parameters",
        about=(
            "The model in the package. It fits into the processor's cache, so this measures everything but"
            " reading weights: HTTP, scheduling, dispatch, sampling. Its speed says nothing about Gemma 4."
        ),
        model="acorn",
        engines=(
            "onechip:bf16",
            "onechip:int4",
            "llama.cpp:bf16",
            "llama.cpp:q4_0",
            "vllm:bf16",
            "mistral.rs:bf16",
            "pytorch:bf16",
            "transformers:bf16",
            "litert-lm",
        ),
        options=(
            *("--levels", "1,8,64", "--shapes", "64/32", "--cell-seconds", "0.1", "--waves", "1"),
            *("--one-tokens", "48", "--acc-limit", "50", "--job-minutes", "2.5"),
        ),
    ),
    "e2b": Bench(
        title="Gemma 4 E2B's shape, random weights",
        about=(
            "4.6 billion parameters, drawn at random on the int4 grid, so that every engine has exactly the"
            " same linear weights whatever its format (emb4: the tables are 4-bit too). The text is noise, so"
            " accuracy is not asked. One repeat: nothing here is a claim."
        ),
        model=str(RESULTS / "e2b-w4a16"),
        engines=(
            "onechip:int4",
            "llama.cpp:q4_0",
            "onechip:int4-emb4",
            "llama.cpp:q4_0-emb4",
            "vllm:bf16",
        ),
        options=(
            *("--jobs", "start,sweep", "--levels", "1,8,64", "--shapes", "32/16"),
            *("--repeats", "1", "--cell-seconds", "0", "--waves", "1"),
        ),
        shape=("e2b", "--dtype", "w4a16"),
    ),
}


GREEDY = ("onechip:f32", "transformers:f32", "llama.cpp:f32", "vllm:f32", "mistral.rs:f32", "pytorch:f32")
"""Whose greedy text is compared; the first is what the others are compared with."""


def catalogue() -> dict[str, dict[str, Any]]:
    """What `onechip ladder list` says of each engine, by name."""
    said = subprocess.run([*ONECHIP, "ladder", "list", "--json"], capture_output=True, text=True, check=True)
    return {engine["name"]: engine for engine in json.loads(said.stdout)["engines"]}


def install(words: tuple[str, ...]) -> list[str]:
    """The words whose engines run here, after those that were missing were installed."""
    known, usable = catalogue(), []
    for word in words:
        name = word.partition(":")[0]
        engine = known[name]
        if engine["obstacle"] is not None:
            print(f"{name} is left out: {engine['obstacle']}")
            continue
        if engine["version"] is None:
            subprocess.run([*ONECHIP, "ladder", "install", name], check=True)
        usable.append(word)
    return usable


def command(bench: Bench, engines: list[str], out: Path) -> list[str]:
    return ["ladder", "run", bench.model, "--engines", ",".join(engines), *bench.options, "--out", str(out)]


def unfinished(out: Path) -> bool:
    """Whether a ladder in `out` was interrupted."""
    path = out / "manifest.json"
    return path.exists() and json.loads(path.read_text())["finished_at"] is None


def run(name: str) -> None:
    """Runs a ladder, or goes on with one that was interrupted."""
    bench, out = BENCHES[name], RESULTS / name
    RESULTS.mkdir(exist_ok=True)
    if bench.shape is not None and not Path(bench.model).exists():
        shape, *flags = bench.shape
        subprocess.run([*ONECHIP, "synth", bench.model, "--shape", shape, *flags], check=True)
    if unfinished(out):
        subprocess.run([*ONECHIP, "ladder", "resume", str(out)], check=True)
        return
    words = command(bench, install(bench.engines), out)
    (RESULTS / f"{name}.command").write_text("onechip " + " ".join(words).replace(f"{ROOT}/", "") + "\n")
    subprocess.run([*ONECHIP, *words], check=True)


def greedy() -> None:
    """The table of greedy texts, by bench/greedy.py."""
    script = [sys.executable, str(ROOT / "bench" / "greedy.py"), str(RESULTS / "greedy"), "--limit", "50"]
    words = ["--engines", ",".join(install(GREEDY)), "--out", str(RESULTS / "greedy.md")]
    subprocess.run([*script, *words], check=True)


def parts(report: str, mark: str) -> dict[str, str]:
    """Heading -> text below it, of all headings of a report.md that begin with `mark`."""
    found = {}
    for part in report.split(f"\n{mark} ")[1:]:
        title, _, text = part.partition("\n")
        found[title.strip()] = text.partition("\n## ")[0].strip()
    return found


def shortened(table: str, rows: int = 12) -> str:
    """A Markdown table with its first rows, and how many more there are."""
    lines = table.splitlines()
    left_out = len(lines) - 2 - rows
    if left_out <= 0:
        return table
    return "\n".join(lines[: 2 + rows]) + f"\n\nAnd {left_out} more rows of this kind in the report."


def chapter(name: str) -> str:
    """One ladder's part of the page."""
    bench, out = BENCHES[name], RESULTS / name
    manifest = json.loads((out / "manifest.json").read_text())
    machine = manifest["machine"]
    report = (out / "report.md").read_text()
    shown = {MEDALS: parts(report, "##")[MEDALS]} | parts(report, "###")
    if "INVALID cells, counted" in shown:  # where a report has it, the other table is long
        shown["INVALID cells"] = shortened(shown["INVALID cells, counted"])
    lines = [
        f"## {bench.title}",
        bench.about,
        f"{manifest['started_at'][:10]}, {machine['cpu']}, {machine['cores']} cores,"
        f" {machine['memory_gib']} GiB, {machine['system']}; onechip {manifest['onechip']['commit'][:12]}.",
        f"```\n{(RESULTS / f'{name}.command').read_text().strip()}\n```",
    ]
    lines += [f"* {sentence}" for sentence in json.loads((out / "summary.json").read_text())["uneven"]]
    lines += [line for line in report.splitlines() if "cells are INVALID: they are in no figure" in line]
    lines += [f"### {title}\n\n{shown[title]}" for title in (MEDALS, *TABLES) if title in shown]
    return "\n\n".join(lines)


HEAD = (
    "# Engines on this CPU\n\nMade by `make bench` from the raw records in bench-results/, each chapter"
    " on the day and by the commit that it names;"
    " how to read it is in [reading-a-report.md](reading-a-report.md)."
)
GREEDY_TITLE = "The same greedy text on acorn"


def chapters(page: str) -> dict[str, str]:
    """Title -> chapter, of a page that `write` has made."""
    return {part.partition("\n")[0]: f"## {part.strip()}" for part in page.split("\n## ")[1:]}


def write() -> None:
    """The page: a chapter from each ladder and table whose results are here, the others as they stand."""
    found = chapters(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for name, bench in BENCHES.items():
        if (RESULTS / name / "report.md").exists():
            found[bench.title] = chapter(name)
    greedy = RESULTS / "greedy.md"
    if greedy.exists():
        found[GREEDY_TITLE] = f"## {GREEDY_TITLE}\n\n{greedy.read_text().strip()}"
    titles = [*(bench.title for bench in BENCHES.values()), GREEDY_TITLE]
    parts = [found[title] for title in titles if title in found]
    PAGE.write_text("\n\n".join([HEAD, *parts]) + "\n", encoding="utf-8")
    print(f"wrote {PAGE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="+", choices=[*BENCHES, "greedy", "write"])
    for what in parser.parse_args().what:
        if what == "write":
            write()
        elif what == "greedy":
            greedy()
        else:
            run(what)


if __name__ == "__main__":
    main()
