"""The `onechip` command: arguments in, one call out. Nothing heavy is imported before a command is chosen."""

from __future__ import annotations

import sys

import typer

from onechip.errors import OnechipError

app = typer.Typer(
    name="onechip",
    help="Serve a small model on one chip, and know which engine to do it with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a command; an error that we know becomes one sentence on stderr and its own exit code."""
    try:
        app()
    except OnechipError as error:
        print(f"onechip: {error.message}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
