"""Executables come back from the cache folder, and what cannot be used there is compiled again."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onechip
from onechip.engine import aot
from onechip.engine.programs import Program


def program(step: float = 1.0) -> Program:
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    return Program("add[4]", lambda x: x + step, (shape,), donated=0)


def result(executable: aot.Executable) -> list[float]:
    return np.asarray(executable(jnp.zeros(4))).tolist()


def test_an_executable_comes_back_from_its_file(tmp_path: Path) -> None:
    assert result(aot.load_or_compile(program(), tmp_path)) == [1.0] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["add-4.bin"]
    kept = aot.load_or_compile(program(step=2.0), tmp_path)
    assert result(kept) == [1.0] * 4, "the file was used: its folder's name vouches for what is in it"


def test_a_damaged_file_is_compiled_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "add-4.bin").write_bytes(b"not an executable")
    assert result(aot.load_or_compile(program(), tmp_path)) == [1.0] * 4
    assert "add-4.bin cannot be used" in capsys.readouterr().out
    assert result(aot.load_or_compile(program(step=2.0), tmp_path)) == [1.0] * 4


def test_a_folder_that_cannot_be_written_costs_only_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert aot.usable(tmp_path / "file" / "folder") is None
    assert capsys.readouterr().out.count("cannot be written") == 1
    assert aot.usable(tmp_path / "a" / "b") == tmp_path / "a" / "b"


def test_a_disk_that_is_full_costs_only_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert result(aot.load_or_compile(program(), tmp_path)) == [1.0] * 4
    assert "cannot be kept" in capsys.readouterr().out


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert result(aot.load_or_compile(program(), None)) == [1.0] * 4
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_hangs_on_what_programs_hang_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first = aot.fingerprint("config", (1, 2))
    assert aot.fingerprint("config", (1, 2)) == first
    assert aot.fingerprint("config", (1, 3)) != first
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert aot.fingerprint("config", (1, 2)) != first
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(aot, "_sources", lambda: iter([b"another source"]))
    assert aot.fingerprint("config", (1, 2)) != first


def test_every_module_that_programs_are_traced_through_is_in_the_fingerprint() -> None:
    """What programs.py imports of our own, through and through, less what holds only types and numbers."""
    root = Path(onechip.__file__).parent
    listed = {path for pattern in aot.PROGRAM_SOURCES for path in root.glob(pattern)}
    seen, todo = set[Path](), [root / "engine/programs.py"]
    while todo:
        path = todo.pop()
        seen.add(path)
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("onechip."):
                base = root / (node.module or "").removeprefix("onechip.").replace(".", "/")
                found = [base.with_suffix(".py"), *(base / f"{name.name}.py" for name in node.names)]
                todo += [path for path in found if path.exists() and path not in seen]
    without_programs = {"engine/plan.py", "engine/types.py", "engine/chip.py", "engine/turns.py"}
    without_programs |= {"engine/placement.py", "models/layout.py", "models/quant.py", "models/leaf.py"}
    without_programs |= {"errors.py", "engine/prefixes.py"}
    assert {str(path.relative_to(root)) for path in seen - listed} == without_programs


def test_prune_keeps_what_was_used_last(tmp_path: Path) -> None:
    for age in range(aot.KEPT_FINGERPRINTS + 3):
        (tmp_path / f"f{age:02}").mkdir()
        os.utime(tmp_path / f"f{age:02}", (1000 - age, 1000 - age))
    aot.prune(tmp_path / "f10")
    newest = [f"f{age:02}" for age in range(aot.KEPT_FINGERPRINTS - 1)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*newest, "f10"]
