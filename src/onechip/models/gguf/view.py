"""A .gguf file in; a checkpoint folder in the user's cache that stands for it out.

The folder has the text files that a checkpoint has, made from the file's metadata once, and links to the file
itself, from which weights are read. So whatever reads a checkpoint folder reads GGUF files, and the second
start does not parse a vocabulary again.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from onechip.errors import CheckpointError
from onechip.models.config import parse_config
from onechip.models.gguf.checkpoint import open_parts, part_paths
from onechip.models.gguf.metadata import Metadata, config_json, generation_json
from onechip.models.gguf.tokenizer import tokenizer_config_json, tokenizer_json

_VERSION = 2
"""Counted up when the text files come out otherwise than before: older folders are then not used."""


def view(path: Path, root: Path) -> Path:
    """The folder below `root` that stands for the .gguf file at `path`, or for all parts of which it is one.

    Raises:
        CheckpointError: naming what is missing, damaged or not served, or why the cache cannot be written.
    """
    parts = [part.absolute() for part in part_paths(path)]
    folder = root / _key(parts)
    if (folder / "config.json").exists():
        return folder
    texts = _texts(path)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _drop_stale(root, parts)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        for name, content in texts.items():
            (fresh / name).write_bytes(content)
        for part in parts:
            (fresh / part.name).symlink_to(part)
        _move(fresh, folder)
    except OSError as error:
        raise CheckpointError(
            f"{root} cannot be written ({error.strerror or error}): onechip keeps there what it makes of a "
            "GGUF file; set XDG_CACHE_HOME to a folder that can."
        ) from None
    return folder


def linked_files(folder: Path) -> list[Path]:
    """The .gguf files in a folder, in order; where they are links that `view` made, what they point to."""
    links = sorted(folder.glob("*.gguf"))
    return [
        link.readlink() if link.is_symlink() and link.readlink().is_absolute() else link for link in links
    ]


def _key(parts: list[Path]) -> str:
    """Changes with the files: their paths, sizes and times."""
    facts: list[Any] = [_VERSION]
    for part in parts:
        try:
            state = part.stat()
        except OSError as error:
            raise CheckpointError(f"{part} cannot be read: {error.strerror or error}.") from None
        facts.append((str(part), state.st_size, state.st_mtime_ns))
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:24]


def _texts(path: Path) -> dict[str, bytes]:
    """Name -> content of the text files."""
    metadata = Metadata.read(open_parts(path))
    config = config_json(metadata)
    try:
        parse_config(config)
    except CheckpointError as error:
        raise CheckpointError(f"{path} as a config.json: {error.message}") from None
    texts = {
        "config.json": msgspec.json.format(msgspec.json.encode(config)),
        "generation_config.json": msgspec.json.encode(generation_json(metadata)),
        "tokenizer.json": msgspec.json.encode(tokenizer_json(metadata)),
        "tokenizer_config.json": msgspec.json.encode(tokenizer_config_json(metadata)),
    }
    if metadata.has("tokenizer.chat_template"):
        texts["chat_template.jinja"] = metadata.text("tokenizer.chat_template").encode()
    return texts


def _drop_stale(root: Path, parts: list[Path]) -> None:
    """Remove the folders of files that are gone, and of earlier contents of these files."""
    for folder in root.iterdir():
        links = linked_files(folder)
        if links and any(link in parts or not link.exists() for link in links):
            shutil.rmtree(folder, ignore_errors=True)


def _move(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not (folder / "config.json").exists():  # else another process was faster
            raise
