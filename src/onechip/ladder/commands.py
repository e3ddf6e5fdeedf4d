"""`onechip ladder`: options in, a plan out, and the ladder run, resumed or reported."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from msgspec.structs import replace
from rich.console import Console

from onechip.errors import LadderError, UsageError
from onechip.ladder import check_commands, engine_commands, report_commands
from onechip.ladder import pin as pins
from onechip.ladder.disk import naming_files
from onechip.ladder.plan import (
    DEFAULT_ENGINES,
    MANY_REPEATS,
    MOST_AT_ONCE,
    MOST_BY_ITSELF,
    QUICK,
    REPEATS,
    Limits,
    Plan,
    check,
    usual_repeats,
)
from onechip.ladder.records import Arm

DEFAULT_COMMAND = "run"
INTERRUPTED = 130


class _RunByDefault(typer.core.TyperGroup):
    """`onechip ladder acorn --quick` is `onechip ladder run acorn --quick`; bare `onechip ladder` is help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with naming_files():
            return super().invoke(ctx)


ladder = typer.Typer(
    name="ladder",
    cls=_RunByDefault,
    no_args_is_help=True,
    help=(
        "Put engines through the same jobs, one at a time, and say who wins what.\n\n"
        "`onechip ladder MODEL` runs one (options: `onechip ladder run --help`)."
    ),
    pretty_exceptions_enable=False,
)

_Model = Annotated[str, typer.Argument(help="Folder, hub id, or acorn, the stand-in that ships.")]
_Quick = Annotated[bool, typer.Option("--quick", help="A few minutes: fewer levels, shorter shapes.")]
_Out = Annotated[Path | None, typer.Option("--out", help="Results folder. Default: ladder-MODEL-DATE.")]
_Engines = Annotated[
    str | None,
    typer.Option(help=f"ENGINE, ENGINE:WORD or openai=URL, comma-separated. Default: {DEFAULT_ENGINES}."),
]
_Arm = Annotated[
    list[str] | None,
    typer.Option(help="'NAME = ENGINE FLAGS...' or 'NAME = openai URL'; may be given again."),
]
_Jobs = Annotated[str | None, typer.Option(help="Of start,one,sweep,acc. Default: all.")]
_Levels = Annotated[
    str | None, typer.Option(help=f"Requests at once in the sweep, like 1,8,64; {MOST_AT_ONCE} at the most.")
]
_Shapes = Annotated[str | None, typer.Option(help="Tokens IN/OUT in the sweep, like 512/128,128/512.")]
_Repeats = Annotated[
    str | None,
    typer.Option(
        help="Of each cell of one and sweep: N, or LEAST-MOST, adding until the interval is narrow."
        f" Default: {MANY_REPEATS}-{MOST_BY_ITSELF}, with --quick {REPEATS}."
    ),
]
_Compare = Annotated[
    tuple[str, str] | None,
    typer.Option(help="Two arms in turns, A B B A: words of --engines, or names of --arm."),
]
_PerStart = Annotated[
    int | None, typer.Option(help="With --compare: repeats of each cell for each start. Default: 1.")
]
_Pin = Annotated[str | None, typer.Option(help="Cores of the engines, like 0-5; the client gets the others.")]
_CoolDown = Annotated[
    float | None, typer.Option(help="Most seconds to wait between two arms for a quiet machine. Default: 60.")
]
_CellSeconds = Annotated[
    float | None,
    typer.Option(help="About the least seconds of a sweep cell. Default: 5; with --quick 1."),
]
_Waves = Annotated[
    int | None, typer.Option(help="Least requests in a sweep cell, in multiples of its level. Default: 3.")
]
_OneTokens = Annotated[int | None, typer.Option(help="Output tokens a prompt in one. Default: 256.")]
_JobMinutes = Annotated[
    float | None, typer.Option(help="Of one job of one engine; its cells that are left are INVALID then.")
]
_Acc = Annotated[str | None, typer.Option(help="Question sets: acorn, gsm8k, bfcl. Default: acorn.")]
_AccLimit = Annotated[int | None, typer.Option(help="Only the first so many questions of each set.")]
_AccLevel = Annotated[int | None, typer.Option(help="Questions asked at once. Default: 1.")]
_RepeatAcc = Annotated[
    int | None,
    typer.Option(help="Times more that each arm is asked the sets, to see how often it contradicts itself."),
]
_Data = Annotated[Path | None, typer.Option(help="Folder with gsm8k and bfcl. Default: fetched and checked.")]
_Seed = Annotated[int | None, typer.Option(help="Of all prompts. Default: 1.")]
_Stall = Annotated[
    float | None, typer.Option(help="Seconds without a byte that fail a request. Default: 120.")
]
_Folder = Annotated[Path, typer.Argument(help="Results folder.")]
_ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="OPENAI_API_KEY", help="For openai=URL arms; never stored."),
]


@ladder.command(DEFAULT_COMMAND)
def run(
    model: _Model = "acorn",
    quick: _Quick = False,
    out: _Out = None,
    engines: _Engines = None,
    arm: _Arm = None,
    jobs: _Jobs = None,
    levels: _Levels = None,
    shapes: _Shapes = None,
    repeats: _Repeats = None,
    compare: _Compare = None,
    per_start: _PerStart = None,
    pin: _Pin = None,
    cool_down: _CoolDown = None,
    cell_seconds: _CellSeconds = None,
    waves: _Waves = None,
    one_tokens: _OneTokens = None,
    job_minutes: _JobMinutes = None,
    acc: _Acc = None,
    acc_limit: _AccLimit = None,
    acc_level: _AccLevel = None,
    repeat_acc: _RepeatAcc = None,
    data: _Data = None,
    seed: _Seed = None,
    stall: _Stall = None,
    api_key: _ApiKey = None,
) -> None:
    """Run a ladder and print who wins what."""
    given = {
        "jobs": _words(jobs),
        "levels": _numbers("--levels", levels),
        "shapes": _shapes(shapes),
        "compare": compare is not None,
        "per_start": per_start,
        "pin": None if pin is None else pins.parse(pin),
        "least_cell_s": cell_seconds,
        "waves": waves,
        "one_tokens": one_tokens,
        "acc": _words(acc),
        "acc_limit": acc_limit,
        "acc_level": acc_level,
        "acc_again": repeat_acc,
        "data": str(data.absolute()) if data is not None else None,
        "seed": seed,
        "limits": _limits(stall, job_minutes, cool_down),
    }
    from onechip.ladder import arms

    where = _absolute(model)
    found = (
        arms.parse(where, engines, arm or [])
        if compare is None
        else arms.compared(where, compare, engines, arm or [])
    )
    _begin(_plan(where, arms.check_ready(found), quick, repeats, given), out, api_key)


def _limits(stall_s: float | None, job_minutes: float | None, cool_s: float | None) -> Limits:
    usual = Limits()
    return Limits(
        stall_s=usual.stall_s if stall_s is None else stall_s,
        job_s=usual.job_s if job_minutes is None else 60 * job_minutes,
        cool_s=usual.cool_s if cool_s is None else cool_s,
    )


def _plan(model: str, arms: tuple[Arm, ...], quick: bool, repeats: str | None, given: dict[str, Any]) -> Plan:
    """The plan from the options that were given (None: not given); raises UsageError."""
    chosen = (QUICK if quick else {}) | {name: value for name, value in given.items() if value is not None}
    plan = Plan(model, arms, quick=quick, **chosen)
    if repeats is not None:
        least, most = _repeats(repeats)
        return check(replace(plan, repeats=least, most_repeats=most))
    return check(usual_repeats(plan))


def _repeats(text: str) -> tuple[int, int | None]:
    """N, or LEAST-MOST."""
    least, dash, most = text.partition("-")
    try:
        return int(least), int(most) if dash else None
    except ValueError:
        raise UsageError(
            f"--repeats {text}: give a number, like 6, or the least and the most, like 6-12."
        ) from None


def _begin(plan: Plan, out: Path | None, api_key: str | None) -> None:
    """A new ladder."""
    from onechip.ladder import folder as folders

    where = out or Path(f"ladder-{Path(plan.model).name}-{datetime.now():%Y%m%d-%H%M%S}")
    aside = folders.make_room(where)
    if aside is not None:
        print(f"The finished ladder in {where} is now in {aside}.")
    manifest = folders.create(where, plan)
    for said in (*manifest.notes, *manifest.design):
        print(said)
    _go(where, api_key, retry_invalid=False)


@ladder.command()
def resume(
    folder: _Folder,
    retry_invalid: Annotated[
        bool, typer.Option("--retry-invalid", help="Measure invalid cells again.")
    ] = False,
    api_key: _ApiKey = None,
) -> None:
    """Go on with a ladder that was interrupted; no finished cell runs again."""
    from onechip.ladder import folder as folders

    folders.reopen(folder)
    _go(folder, api_key, retry_invalid=retry_invalid)


ladder.command("report")(report_commands.report)
ladder.command("published")(report_commands.published)
ladder.command("flips")(check_commands.flips)
ladder.command("claims")(check_commands.claims)
ladder.command("list")(engine_commands.list_)
ladder.command("install")(engine_commands.install)
ladder.command("uninstall")(engine_commands.uninstall)


def _go(folder: Path, api_key: str | None, *, retry_invalid: bool) -> None:
    """Measures what is missing and reports; an interrupt keeps what was measured and says how to go on."""
    from onechip.ladder import folder as folders
    from onechip.ladder import manifest as manifests
    from onechip.ladder.journal import Journal
    from onechip.ladder.run import Ladder
    from onechip.ladder.screen import Screen

    console = Console()
    journal = Journal(folder)
    if journal.torn is not None:
        print(journal.torn)
    manifest = manifests.load(folder)
    counter = folders.token_counter(manifest.plan)
    ladder = Ladder(folder, manifest, journal, Screen(console), counter, api_key, retry_invalid)
    try:
        ladder.run()
    except LadderError:
        # On a full disk the report cannot be written either, which need not be said twice.
        with contextlib.suppress(LadderError):
            report_commands.show(folder, console)
        raise
    except KeyboardInterrupt:
        print(f"Interrupted. Go on with: onechip ladder resume {folder}")
        raise SystemExit(INTERRUPTED) from None
    finally:
        journal.close()
    report_commands.show(folder, console)
    shortfall = ladder.shortfall()
    if shortfall is not None:
        print(shortfall)


def _absolute(model: str) -> str:
    """A folder's absolute path, so that `resume` finds it from anywhere; other names as they are."""
    return str(Path(model).expanduser().absolute()) if Path(model).expanduser().is_dir() else model


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text}: give whole numbers separated by commas, like 1,8,64.") from None


def _shapes(text: str | None) -> tuple[tuple[int, int], ...] | None:
    if text is None:
        return None
    try:
        pairs = [word.split("/") for word in text.split(",")]
        return tuple((int(tokens_in), int(tokens_out)) for tokens_in, tokens_out in pairs)
    except ValueError:
        raise UsageError(
            f"--shapes {text}: write IN/OUT pairs separated by commas, like 512/128,128/512."
        ) from None
