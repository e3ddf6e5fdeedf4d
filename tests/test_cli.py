"""The command itself: its version, its help, and what bare commands say."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

import onechip
from onechip.cli import app
from onechip.engine.plan import MAX_REQUESTS


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_version() -> None:
    said = invoke("--version")
    assert (said.exit_code, said.output) == (0, f"onechip {onechip.__version__}\n")


@pytest.mark.parametrize(("words", "commands"), [((), ("serve", "synth")), (("ladder",), ("run", "resume"))])
def test_a_bare_command_says_what_there_is(words: tuple[str, ...], commands: tuple[str, ...]) -> None:
    said = invoke(*words)
    assert said.exit_code == 2
    assert "Usage:" in said.output
    assert all(command in said.output for command in commands)


def test_help_of_serve_has_the_engine_s_limit() -> None:
    assert f"1 to {MAX_REQUESTS}" in invoke("serve", "--help").output
