"""`onechip serve` that cannot start says why in one sentence; its exit code tells the kind of mistake."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def serve(*arguments: str) -> tuple[int, list[str]]:
    """Exit code and the lines on stderr."""
    command = [sys.executable, "-m", "onechip.cli", "serve", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    return done.returncode, done.stderr.splitlines()


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, lines = serve("acorn", "--port", str(port))
    assert code == 2
    assert lines == [
        f"onechip: Cannot listen on 127.0.0.1:{port}: Address already in use; try another --host or --port."
    ]


@pytest.mark.parametrize("content", [None, "{}", "{"], ids=["no folder", "empty config", "damaged config"])
def test_a_checkpoint_that_can_not_be_loaded(tmp_path: Path, content: str | None) -> None:
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
        (folder / "config.json").write_text(content)
    code, lines = serve(str(folder), "--port", "0")
    assert code == 3
    assert lines[-1].startswith("onechip: ")
    assert "model" in lines[-1]
    assert not any("Traceback" in line for line in lines)


def test_what_takes_seconds_to_import_is_imported_behind_an_open_port() -> None:
    found = "import sys, onechip.server.run; print(sorted({'jax', 'llguidance'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", found], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "[]"
