"""Files that cannot be used, and a full disk: the system's error in, one sentence with the mend out."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from onechip.cache import cache_root
from onechip.errors import LadderError, UsageError

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def naming_files() -> Iterator[None]:
    """Around a whole command: a file or folder that the system refuses is named, with a mend.

    Raises:
        UsageError: in place of an OSError that says which file it is about.
    """
    try:
        yield
    except OSError as error:
        name = error.filename2 or error.filename
        if not isinstance(name, str):
            raise
        inside = cache_root() in (Path(name), *Path(name).parents) or Path(name) in cache_root().parents
        mend = (
            "set XDG_CACHE_HOME to a folder that can be written" if inside else "mend that, or give another"
        )
        raise UsageError(f"{name} cannot be used ({error.strerror}): {mend}.") from None


@contextlib.contextmanager
def writing(path: Path, folder: Path) -> Iterator[None]:
    """Around everything that writes into a results folder.

    Args:
        path: what is written.
        folder: the results folder, to go on with.

    Raises:
        LadderError: the disk, or the user's share of it, is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise LadderError(
            f"The disk is full ({error.strerror}): {path} could not be written. What was measured before is"
            f" kept. Make room, then go on with: onechip ladder resume {folder}"
        ) from None
