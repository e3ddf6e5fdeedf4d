"""What `ladder list` says: engines and this machine in, a block of lines or a JSON object for each out."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from onechip.ladder.engines import ENGINES, locks
from onechip.ladder.engines.engine import Engine
from onechip.ladder.host import Host, this_host
from onechip.ladder.plan import JOBS

WIDTH = 100


def facts(engine: Engine, host: Host) -> dict[str, Any]:
    """All that is known of one engine here.

    Returns:
        name, summary, state, installed (bool), version (None if not installed), runs_here (bool), obstacle
        (None if it runs), install (how it gets here), words, formats, drafter, tools, needs; see Engine.
    """
    version, obstacle, state = engine.version(), engine.obstacle(host), engine.state
    return {
        "name": engine.name,
        "summary": engine.summary,
        "state": state,
        "installed": version is not None,
        "version": version,
        "runs_here": obstacle is None,
        "obstacle": obstacle,
        "install": _install(engine, host, state),
        "words": {
            word: {"form": v.form, "flags": list(v.flags), "remark": v.remark}
            for word, v in engine.variants.items()
        },
        "formats": engine.formats,
        "drafter": engine.drafter,
        "tools": engine.tools,
        "needs": engine.needs,
    }


def _install(engine: Engine, host: Host, state: str) -> str:
    if state == "broken":
        return f"onechip ladder install --force {engine.home or engine.name}"
    if engine.recipe is None:
        return engine.install
    if locks.read(engine.recipe.lock, host.platform) is None:
        return f"no lock for {host.platform}. {engine.recipe.elsewhere}".strip()
    build = engine.recipe.build
    minutes = "" if build is None else f" ({build.what}, about {build.minutes} minutes)"
    return f"onechip ladder install {engine.name}{minutes}"


def show_json() -> None:
    """Everything as one JSON object on the standard output."""
    host = this_host()
    engines = [facts(engine, host) for engine in ENGINES.values()]
    chip = {"platform": host.platform, "gpu": host.gpu, "memory_bytes": host.memory_bytes}
    print(json.dumps({"jobs": list(JOBS), "host": chip, "engines": engines}, indent=2, ensure_ascii=False))


def show(console: Console) -> None:
    """A block of lines an engine, at most WIDTH columns wide."""
    host = this_host()
    width = min(console.width, WIDTH)
    console.print(f"jobs: {', '.join(JOBS)}", highlight=False)
    console.print(f"this machine: {host.platform}{f', {host.gpu}' if host.gpu else ''}", highlight=False)
    for engine in ENGINES.values():
        console.print()
        _block(console, facts(engine, host), width)


def _block(console: Console, found: dict[str, Any], width: int) -> None:
    state = f"installed: {found['version']}" if found["installed"] else found["state"]
    console.print(Text.assemble((found["name"], "bold"), f"  {state}"), width=width)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("what", Text(found["summary"]))
    table.add_row("runs here", Text("yes" if found["runs_here"] else f"no: {found['obstacle']}"))
    if found["words"]:
        table.add_row("words", Text(", ".join(f"{found['name']}:{word}" for word in found["words"])))
    for title in ("formats", "drafter", "tools", "needs"):
        if found[title] and found[title] != "nothing":
            table.add_row(title, Text(found[title]))
    console.print(Padding(table, (0, 0, 0, 2)), width=width, highlight=False)
    if not found["installed"] and found["install"]:
        # In one piece however narrow the terminal is, so that it can be copied.
        console.print(Text.assemble("  ", (f"{'get it':<11}", "dim"), found["install"]), soft_wrap=True)
