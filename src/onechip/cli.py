"""The `onechip` command: arguments in, one call out. Nothing heavy is imported before a command is chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

import onechip
from onechip.engine.types import Dtype, KernelsWish
from onechip.errors import OnechipError
from onechip.ladder.commands import ladder

app = typer.Typer(
    name="onechip",
    help="Serve a small model on one chip, and know which engine to do it with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ladder)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"onechip {onechip.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Say which version.")
    ] = False,
) -> None:
    """Options of the command itself, before a subcommand."""


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="Folder, hub id (owner/name), or acorn.")] = "acorn",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="What clients must send; ONECHIP_API_KEY does the same unseen.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="Tokens of one request, prompt and output. Default: what fits.")
    ] = None,
    max_requests: Annotated[
        int | None, typer.Option(help="Requests at once, 1 to 64. Default: what fits.")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Precision of the weights; auto is as stored.")] = "auto",
    kernels: Annotated[KernelsWish, typer.Option(help="auto: the fastest here; xla: plain JAX.")] = "auto",
    prefix_reuse: Annotated[
        bool, typer.Option(help="Do not compute again what a prompt has in common with earlier ones.")
    ] = True,
    chat_template: Annotated[
        Path | None, typer.Option(help="A file with the Jinja template to use. Default: the checkpoint's.")
    ] = None,
) -> None:
    """Serve MODEL behind an OpenAI-compatible API."""
    from onechip.config import ServeConfig
    from onechip.server.run import serve as run

    config = ServeConfig(
        model, host, port, api_key, context, max_requests, dtype, kernels, prefix_reuse, chat_template
    )
    run(config.with_environment())


@app.command()
def chat(
    model: Annotated[
        str | None,
        typer.Argument(help="Folder, hub id (owner/name), or acorn. With --url: what that server calls it."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="A running server, http://host:port; else one is started meanwhile.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="What it asks for; ONECHIP_API_KEY does the same unseen.")
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "",
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting, as /set has them: temperature=0, thinking=low."),
    ] = None,
    tools: Annotated[Path | None, typer.Option(help="JSON file of functions that may be called.")] = None,
) -> None:
    """Talk to a model in the terminal.

    It is one that a running server has (--url), or MODEL, served until you leave.

    /help lists the commands. Ctrl-C ends an answer, Ctrl-D leaves.

    echo QUESTION | onechip chat   prints the answer, and nothing else.
    """
    from onechip.chat.run import chat as run
    from onechip.chat.settings import Settings
    from onechip.config import ChatConfig

    settings = Settings(system)
    for given in set or ():
        name, _, value = given.partition("=")
        settings.set(name, value)
    if tools is not None:
        settings.load_tools(str(tools))
    run(ChatConfig(model, url, api_key).with_environment(), settings)


@app.command()
def synth(
    folder: Annotated[Path, typer.Argument(help="New or empty folder to write.")],
    shape: Annotated[
        str, typer.Option(help="tiny, e2b, e4b, gemma3-tiny, gemma3-1b, llama3-tiny or llama3-1b.")
    ] = "tiny",
    dtype: Annotated[str, typer.Option(help="bf16 or w4a16.")] = "bf16",
) -> None:
    """Write a complete checkpoint with random weights, for speed work without a download."""
    from onechip.convert.synth import synthesise

    with _bytes_bar(f"{shape} {dtype}") as show:
        size = synthesise(folder, shape, dtype, show)
    print(f"{folder}: {shape} in {dtype}, {size / 1e9:.3g} GB of random weights")


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Folder, .gguf file, hub id, or acorn.")],
    target: Annotated[
        Path, typer.Argument(metavar="DST", help="New folder, or for GGUF a new file ending in .gguf.")
    ],
    to: Annotated[
        str,
        typer.Option(
            help="bf16, w4a16, w4a16-emb4, gguf-bf16 (or gguf), gguf-f16, gguf-f32, gguf-q8_0 (or q8_0),"
            " gguf-q4_0 (or q4_0)."
        ),
    ],
    tables: Annotated[
        str | None,
        typer.Option(help="Embedding tables of gguf-q4_0: q4_0, q6_k or bf16. Default: exactly as SRC's."),
    ] = None,
    round: Annotated[
        bool, typer.Option("--round", help="Round to int4 what is not int4 already; else it is refused.")
    ] = False,
) -> None:
    """Write the same weights in another engine's format."""
    from onechip.convert.convert import convert as run
    from onechip.models.source import resolve_model

    path = Path(source) if source.endswith(".gguf") else resolve_model(source)
    with _bytes_bar(to) as show:
        summary = run(path, target, to, round=round, tables=tables, progress=show)
    print("\n".join(summary.lines()))


@contextmanager
def _bytes_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal, as what to call with (bytes done, bytes in all)."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    with ExitStack() as drawn:
        bars = Progress("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        task = bars.add_task(title)

        def show(done: int, total: int) -> None:
            if not bars.live.is_started:  # not before something is written: what is refused draws no bar
                drawn.enter_context(bars)
            bars.update(task, completed=done, total=total)

        yield show


def main() -> None:
    """Run a command; an error that we know becomes one sentence on stderr and its own exit code."""
    try:
        app()
    except OnechipError as error:
        print(f"onechip: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
