"""`onechip ladder report` and `published`: results folders in, their reports and a roll-up of them out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from onechip.errors import UsageError

if TYPE_CHECKING:
    from onechip.ladder.prices import Prices
    from onechip.ladder.summary import Summary

PUBLISHED = "published"
OUT = Path("ladder-rollup")

_Beside = Annotated[
    str | None, typer.Option(help=f"Also show {PUBLISHED}: the comparison that comes with the package.")
]


_Prices = Annotated[
    Path | None,
    typer.Option(help="What chips cost by the hour (TOML, as onechip/ladder/prices.toml), for costs."),
]


def report(
    folders: Annotated[list[Path], typer.Argument(help="Results folders.")],
    beside: _Beside = None,
    prices: _Prices = None,
    out: Annotated[Path, typer.Option(help="Folder of the roll-up of several ladders.")] = OUT,
) -> None:
    """Make reports again from raw records alone; of several, or --beside published, a roll-up too."""
    if beside not in (None, PUBLISHED):
        raise UsageError(
            f"--beside {beside}: the only comparison that comes with the package is {PUBLISHED}."
        )
    from onechip.ladder.prices import load

    console, listed = Console(), load(prices)
    folders = list({folder.resolve(): folder for folder in folders}.values())
    summaries = [show(folder, console, listed) for folder in folders]
    if len(folders) > 1 or beside is not None:
        from onechip.ladder import published as comparisons
        from onechip.ladder.report import rollup as shown
        from onechip.ladder.rollup import roll_up

        names = _names(folders)
        known = [comparisons.load()] if beside is not None else []
        rolled = roll_up(list(zip(names, summaries, strict=True)), known, listed)
        console.print(shown.terminal(rolled))
        print(f"All ladders side by side: {shown.write(rolled, out)}")


def published() -> None:
    """Show the published comparison that comes with the package."""
    from onechip.ladder import published as comparisons
    from onechip.ladder.prices import load
    from onechip.ladder.report import rollup as shown
    from onechip.ladder.rollup import roll_up

    Console().print(shown.terminal(roll_up([], [comparisons.load()], load())))


def show(folder: Path, console: Console, prices: Prices | None = None) -> Summary:
    """Writes a ladder's report and prints its table.

    Args:
        prices: of chips; None: those of the package.

    Raises:
        LadderError: the folder holds no ladder, or a damaged one.
    """
    from onechip.ladder.report import terminal_table, write_report

    summary = write_report(folder, prices)
    console.print(terminal_table(summary))
    print(f"Results, records and report: {folder / 'report.html'}")
    return summary


def _names(folders: list[Path]) -> list[str]:
    """Folder names, or whole paths where two folders share one."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]
