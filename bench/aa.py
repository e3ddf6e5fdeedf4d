"""An A/A check: a ladder of one engine against itself under two names, again and again.

    python bench/aa.py --runs 10      # about a minute each, on a quiet machine

A run reports a difference if it gives a medal for speed or memory, or calls one arm's answers better. None of
ten should: each row is tested at 5 % after Holm's correction, and both intervals of a row must exclude "no
difference". Beside it stands how many rows would be "different" without the correction. The arms alternate in
A B B A blocks; --straight runs them one after the other, which shows what a drift of the machine does then.
Results stay in bench-results/aa, one folder a run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench-results" / "aa"
NAMES = ("A", "B")
WORK = [
    *(
        "--jobs",
        "one,sweep,acc",
        "--one-tokens",
        "32",
        "--levels",
        "1,8",
        "--shapes",
        "32/16",
        "--waves",
        "2",
    ),
    *("--cell-seconds", "0.3", "--acc-limit", "40", "--acc-level", "8", "--cool-down", "0"),
]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--runs", type=int, default=10)
    words.add_argument("--repeats", default="10", help="of each cell, as onechip ladder's; default 10")
    words.add_argument("--straight", action="store_true", help="one arm after the other, not A B B A")
    given = words.parse_args()
    order = [] if given.straight else ["--compare", *NAMES]
    found = [_run(number, [*order, "--repeats", given.repeats]) for number in range(1, given.runs + 1)]
    reporting = sum(bool(differences) for differences in found)
    print(f"{reporting} of {len(found)} runs report a difference between an engine and itself.")
    raise SystemExit(1 if reporting else 0)


def _run(number: int, options: list[str]) -> list[str]:
    """One ladder; the differences that it reports, as sentences."""
    out = RESULTS / str(number)
    shutil.rmtree(out, ignore_errors=True)
    arms = [word for name in NAMES for word in ("--arm", f"{name} = onechip --dtype bf16")]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "onechip.cli", "ladder", "acorn", *arms, *WORK, *options, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"run {number} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    differences = list(_differences(summary))
    tested = [row for row in summary["rows"] if row["verdict"]["p"] is not None]
    lone = sum(row["verdict"]["p"] < 0.05 for row in tested)
    print(
        f"run {number}: {time.monotonic() - began:.0f} s, {summary['cells']} cells,"
        f" {len(summary['invalid'])} INVALID, {len(tested)} rows tested, {lone} with p < 0.05 alone,"
        f" smallest p after Holm {min((row['verdict']['adjusted_p'] for row in tested), default=1.0):.3f}:"
        f" {'; '.join(differences) or 'no difference reported'}",
        flush=True,
    )
    return differences


def _differences(summary: dict[str, Any]) -> list[str]:
    """Rows with a medal, and scores that are called different; a tie of counts is none."""
    return [
        f"{row['verdict']['leader']} wins {row['label']!r}"
        for row in summary["rows"]
        if row["verdict"]["outcome"] == "medal"
    ]


if __name__ == "__main__":
    main()
