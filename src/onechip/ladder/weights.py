"""The weights that an arm serves: MODEL and a form in, a checkpoint out, made once into the cache.

A MODEL that is not 4-bit is rounded once, to `w4a16`; every other 4-bit form is made from that one, so all
4-bit arms have the same 4-bit values. `onechip convert` runs in a process of its own: it may need gigabytes
that the ladder's own process must not hold while it measures.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

import onechip
from onechip.cache import cache_root
from onechip.errors import CheckpointError, EngineError
from onechip.ladder.checkpoint import file_hashes
from onechip.models.source import resolve_model

RECORD = "weights.json"
"""Written last into a cache folder; a folder without it is not finished."""
POLL_S = 0.5
_FORM_OF = (
    "import sys; from pathlib import Path; from onechip.convert.forms import form_of;"
    " print(form_of(Path(sys.argv[1])))"
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a form is made.

    Attributes:
        options: of `onechip convert`, behind --to.
        parent: the form that it is made from; "" is MODEL itself.
        rounds: whether dense weights are rounded to 4 bits in this step.
        alike: convert.form_of of checkpoints that are served as they are.
    """

    options: tuple[str, ...]
    parent: str = ""
    rounds: bool = False
    alike: str = ""

    @property
    def is_file(self) -> bool:
        """A .gguf file, not a folder."""
        return self.options[0].startswith("gguf")


FORMS: dict[str, Form] = {
    "bf16": Form(("bf16",), alike="bf16"),
    "w4a16": Form(("w4a16",), rounds=True, alike="w4a16"),
    "w4a16-emb4": Form(("w4a16-emb4",), "w4a16", rounds=True, alike="w4a16-emb4"),
    "gguf-bf16": Form(("gguf-bf16",), alike="gguf-bf16"),
    "gguf-f16": Form(("gguf-f16",), alike="gguf-f16"),
    "gguf-f32": Form(("gguf-f32",), alike="gguf-f32"),
    "gguf-q8_0": Form(("gguf-q8_0",), alike="gguf-q8_0"),
    "gguf-q4_0": Form(("gguf-q4_0", "--tables", "bf16"), "w4a16", alike="gguf-q4_0"),
    "gguf-q4_0-q6_k": Form(("gguf-q4_0", "--tables", "q6_k"), "w4a16", alike="gguf-q4_0"),
    "gguf-q4_0-emb4": Form(("gguf-q4_0", "--tables", "q4_0"), "w4a16-emb4", alike="gguf-q4_0"),
}


class Weights(msgspec.Struct, frozen=True):
    """A checkpoint that an arm serves.

    Attributes:
        path: folder or .gguf file.
        form: that was asked for, "" for MODEL as it is.
        command: that made it, empty if MODEL was served as it is.
        hashes: file name -> SHA-256.
        notes: what `onechip convert` said of it: what was rounded.
    """

    path: str
    form: str = ""
    command: list[str] = []
    hashes: dict[str, str] = {}
    notes: list[str] = []


def source(model: str) -> Path:
    """The folder or .gguf file that MODEL means.

    Raises:
        CheckpointError: it cannot be found.
    """
    path = Path(model).expanduser()
    return path if path.suffix == ".gguf" and path.is_file() else resolve_model(model)


def prepare(model: str, form: str, hashes: Mapping[str, str], doing: Callable[[str], None]) -> Weights:
    """The weights of `model` in a form, made if the cache has none.

    Args:
        hashes: of the model's files, by name; with the converter's own source they name the cache folder.
        doing: shows a line of progress that the next one replaces.

    Raises:
        EngineError: they cannot be made, with the converter's reason.
    """
    try:
        path = source(model)
    except CheckpointError as error:
        raise EngineError(error.message) from None
    if not form:
        return Weights(str(path), hashes=dict(hashes))
    return _Maker(model, path, hashes, doing).get(form)


class _Maker:
    """Makes forms of one model; a form's parent first."""

    def __init__(
        self, model: str, path: Path, hashes: Mapping[str, str], doing: Callable[[str], None]
    ) -> None:
        self.model = model
        self.path = path
        self.hashes = hashes
        self.doing = doing
        self._kind: str | None = None

    def get(self, form: str) -> Weights:
        folder = self._folder(form)
        kept = read(folder)
        if kept is not None:
            return kept
        if self.kind == FORMS[form].alike:
            weights = Weights(str(self.path), form, hashes=dict(self.hashes))
        else:
            parent = FORMS[form].parent
            weights = self._make(form, Path(self.get(parent).path) if parent else self.path, folder)
        return keep(folder, weights)

    @property
    def kind(self) -> str:
        """What MODEL is, as convert.form_of has it."""
        if self._kind is None:
            self.doing(f"looking at {self.model}")
            ask = [sys.executable, "-c", _FORM_OF, str(self.path)]
            self._kind = _said(ask, f"{self.model} cannot be read")
        return self._kind

    def _folder(self, form: str) -> Path:
        facts = [sorted(self.hashes.items()), form, str(self.path), _converter()]
        return cache_root() / "weights" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]

    def _make(self, form: str, parent: Path, folder: Path) -> Weights:
        """Converts into a folder of this process's own, which takes its name at the end."""
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        clear(folder)
        name = "model.gguf" if FORMS[form].is_file else "model"
        rounding = ["--round"] if FORMS[form].rounds else []
        options = ["--to", *FORMS[form].options, *rounding]
        try:
            fresh.mkdir(parents=True)
            said = self._convert(["convert", str(parent), str(fresh / name), *options], form, fresh)
            self.doing(f"hashing {form} of {self.model}")
            made = fresh / name
            hashes = file_hashes(made)
            folder.parent.mkdir(parents=True, exist_ok=True)
            fresh.rename(folder)
        except OSError as error:
            raise EngineError(f"{form} of {self.model} cannot be kept in {folder.parent}: {error}.") from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        command = ["onechip", "convert", str(parent), str(folder / name), *options]
        summary = said.rpartition(f"{fresh / name}: ")[2]  # behind the last state of the progress bar
        notes = [line for line in summary.splitlines() if line.strip()]
        return Weights(str(folder / name), form, command, hashes, notes)

    def _convert(self, words: list[str], form: str, folder: Path) -> str:
        """Runs the converter and shows how much it has written."""
        began = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "onechip.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        ) as process:
            try:
                while True:
                    seconds, written = time.monotonic() - began, _size(folder) / 1e9
                    self.doing(f"making {form} of {self.model}: {written:.2f} GB written, {seconds:.0f} s")
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        said, wrong = process.communicate(timeout=POLL_S)
                        break
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            why = (wrong.strip() or said.strip() or "it said nothing").splitlines()[-1]
            raise EngineError(f"{form} cannot be made of {self.model}: {why.removeprefix('onechip: ')}")
        return said


def _environment() -> dict[str, str]:
    """The converter must not sit on an accelerator."""
    return os.environ | {"JAX_PLATFORMS": "cpu"}


def _said(command: list[str], failure: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise EngineError(f"{failure}: {lines[-1].partition(': ')[2] or lines[-1]}")
    return done.stdout.strip()


def read(folder: Path) -> Weights | None:
    """What a cache folder holds; None if it is not finished."""
    try:
        found = msgspec.json.decode((folder / RECORD).read_bytes(), type=Weights)
    except (OSError, msgspec.DecodeError):
        return None
    return found if Path(found.path).exists() else None


def keep(folder: Path, weights: Weights) -> Weights:
    """Writes the record that says that a cache folder is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{RECORD}.new"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(weights)) + b"\n")
    fresh.replace(folder / RECORD)
    return weights


def clear(folder: Path) -> None:
    """Removes what processes that are gone left behind, and a folder that was never finished."""
    for left in folder.parent.glob(f"{folder.name}.*"):
        number = left.suffix.removeprefix(".")
        if not number.isdigit() or not psutil.pid_exists(int(number)):
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


def _converter() -> str:
    """Changes with the code that converts, so that older weights are made again."""
    package = Path(onechip.__file__).parent
    digest = hashlib.sha256()
    folders = (package / "convert", package / "models" / "gguf")
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    for file in (*files, package / "models" / "quant.py"):
        digest.update(file.read_bytes())
    return digest.hexdigest()
