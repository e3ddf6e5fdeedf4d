"""Where a conversion goes: a new folder or a new file, which appears under its name when it is complete."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onechip.errors import CheckpointError, UsageError

_SPARE_BYTES = 64 << 20


def check_free(target: Path) -> None:
    """Raise UsageError unless nothing is at `target`, or an empty folder."""
    if target.is_dir():
        if any(target.iterdir()):
            raise UsageError(f"{target} is not empty: give a new folder, or empty it first.")
    elif target.exists():
        new = "name" if target.suffix == ".gguf" else "folder"
        raise UsageError(f"{target} is a file: give a new {new}.")


def check_room(target: Path, total: int) -> None:
    """Raise UsageError if the disk on which `target` will be has no room for `total` bytes."""
    place = next(parent for parent in (target, *target.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < total + _SPARE_BYTES:
        raise UsageError(
            f"{target} needs {total / 1e9:.2f} GB and its disk has {free / 1e9:.2f} GB free: "
            "make room, or give a folder on another disk."
        )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the name `target` at the end, or is deleted if that is not reached.

    Raises UsageError if it cannot be made.
    """
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a run that was killed
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{target} cannot be made: {error.strerror}.") from None
    try:
        yield partial
        partial.rename(target)
    except OSError as error:
        raise CheckpointError(f"{target} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
