"""`onechip ladder flips` and `claims`: a results folder in, what changed or what does not hold out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from onechip.errors import ClaimError, UsageError

if TYPE_CHECKING:
    from onechip.ladder.answers import Sheet
    from onechip.ladder.claims import Verdict
    from onechip.ladder.records import CellRecord

PUBLISHED = "published"

_Folder = Annotated[Path, typer.Argument(help="Results folder.")]


def flips(
    folder: _Folder,
    a: Annotated[str, typer.Argument(help="An arm.")],
    b: Annotated[str, typer.Argument(help="Another; or A again, after --repeat-acc.")],
    texts: Annotated[
        bool, typer.Option("--texts", help="Also answers that differ in their text alone.")
    ] = False,
) -> None:
    """Show the questions that only one of two arms got right, both answers side by side."""
    from onechip.ladder.answers import changes
    from onechip.ladder.journal import read_records
    from onechip.ladder.report.flips import side_by_side, tally

    records, console = read_records(folder), Console()
    names = (a, b) if a != b else (f"{a}, first", f"{a}, again")
    for variant, (sheet_a, sheet_b) in _sheets(records, a, b).items():
        found = changes(sheet_a, sheet_b, texts=texts)
        n = len(sheet_a.keys() & sheet_b.keys())
        console.print(tally(variant, n, found, names), highlight=False, markup=False)
        console.print(side_by_side(found, names))


def _sheets(records: Sequence[CellRecord], a: str, b: str) -> dict[str, tuple[Sheet, Sheet]]:
    """Question set -> the sheets of both arms, or an arm's first two askings.

    Raises:
        UsageError: there is nothing to compare.
    """
    from onechip.ladder.answers import sheets

    first, other = sheets(records), sheets(records, asking=0 if a != b else 1)
    known = dict.fromkeys(arm for arm, _ in first)
    for arm in (a, b):
        if arm not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"There is no arm {arm!r} with answers in this ladder; there are: {names}.")
    shared = [variant for arm, variant in first if arm == a and (b, variant) in other]
    if not shared and a == b:
        raise UsageError(
            f"{a} was asked once only; to compare it with itself run a ladder with --repeat-acc 1."
        )
    if not shared:
        raise UsageError(f"{a} and {b} answered no question set in common.")
    return {variant: (first[a, variant], other[b, variant]) for variant in shared}


def claims(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help=f"Results folder; {PUBLISHED}: the comparison in the package."),
    ],
) -> None:
    """Check the sentences bound to a ladder's figures: those of claims.yaml, and the report's own."""
    checked = _published() if str(folder) == PUBLISHED else _of_ladder(folder)
    broken = [verdict for _, verdicts in checked for verdict in verdicts if not verdict.holds]
    for source, verdicts in checked:
        holding = sum(verdict.holds for verdict in verdicts)
        print(f"{source}: {holding} of {len(verdicts)} claims hold.")
        for verdict in verdicts:
            if not verdict.holds:
                claim = verdict.claim
                print(f"  DOES NOT HOLD: {claim.text}\n    Expected {claim.expected}; {verdict.why}.")
    if broken:
        noun = "claim does" if len(broken) == 1 else "claims do"
        raise ClaimError(f"{len(broken)} {noun} not hold; what each rests on is above.")


def _of_ladder(folder: Path) -> list[tuple[str, list[Verdict]]]:
    """Of a person's claims, where there are any, and of the sentences that the last report left.

    Raises:
        LadderError: the folder holds no ladder. UsageError: there is nothing to check, or a file is wrong.
    """
    from onechip.ladder import claims as files
    from onechip.ladder import journal, manifest
    from onechip.ladder.results import LadderResults
    from onechip.ladder.summary import summarise

    results = LadderResults(summarise(manifest.load(folder), journal.read_records(folder)))
    paths = [folder / name for name in (files.NAME, files.OWN) if (folder / name).exists()]
    if not paths:
        raise UsageError(
            f"{folder} holds neither {files.NAME} nor {files.OWN}. Write the first, or make the second with:"
            f" onechip ladder report {folder}"
        )
    return [(str(path), [files.judge(claim, results) for claim in files.load(path)]) for path in paths]


def _published() -> list[tuple[str, list[Verdict]]]:
    from onechip.ladder import claims as files
    from onechip.ladder import published
    from onechip.ladder.results import PublishedResults

    results = PublishedResults(published.load())
    with published.claims_file() as path:
        return [(path.name, [files.judge(claim, results) for claim in files.load(path)])]
