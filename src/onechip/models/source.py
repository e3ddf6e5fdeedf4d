"""What a person calls a model in; out comes the folder that its checkpoint is in, fetched if need be."""

from __future__ import annotations

import re
from pathlib import Path

from onechip.cache import cache_root
from onechip.errors import CheckpointError

RANDOM_WEIGHTS = "onechip_random_weights"
"""In config.json, true: the weights are nobody's model (`onechip synth`), so what they write is noise."""

_ACORN = Path(__file__).parent / "acorn"
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_HUB_FILE = re.compile(rf"({_HUB_ID.pattern}):([\w.-]+)", re.ASCII)
_FIRST_PART = re.compile(r"-00001-of-\d{5}$")
_LATER_PART = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")
_FILES = ["*.safetensors", "*.json", "*.jinja"]
_PROJECTOR = "mmproj"  # begins the names of files with the image and sound parts of a GGUF model


def resolve_model(model: str) -> Path:
    """The checkpoint folder of "acorn" (inside the package), of a folder, of a .gguf file, or of a Hugging
    Face hub id.

    For a GGUF file stands a folder in the user's cache, with text files made from it and a link to it (see
    `gguf.view`). A hub id is downloaded into the hub's own cache: safetensors, JSON and template only, or a
    GGUF file where its type is said (owner/name:Q4_0). Raises CheckpointError saying what `model` is not, or
    why it could not be fetched.
    """
    if model == "acorn":
        return _ACORN
    path = Path(model).expanduser()
    if path.is_dir():
        gguf = _only_gguf(path)
        return path if gguf is None else _view(gguf)
    if path.suffix == ".gguf":
        if not path.exists():
            raise CheckpointError(f"{model} does not exist.")
        return _view(path)
    if path.exists():
        raise CheckpointError(
            f"{model} is a file: give a .gguf file, or the folder that holds config.json and the weights."
        )
    if match := _HUB_FILE.fullmatch(model):
        return _view(_download_gguf(match[1], match[2]))
    if not _HUB_ID.fullmatch(model):
        raise CheckpointError(
            f"{model} is no folder here: give a folder, a .gguf file, a hub id (owner/name, or "
            "owner/name:Q4_0 for a GGUF file), or acorn."
        )
    return _download(model)


def _is_model(gguf: Path) -> bool:
    """By its name no projector, and no part but the first."""
    return not gguf.name.startswith(_PROJECTOR) and not _LATER_PART.search(gguf.name)


def _view(gguf: Path) -> Path:
    """Imported here: reading GGUF needs a library that is slow to import."""
    from onechip.models.gguf.view import view

    return view(gguf, _views())


def _views() -> Path:
    return cache_root() / "gguf"


def _only_gguf(folder: Path) -> Path | None:
    """The GGUF file, or its first part, of a folder that has no safetensors; None if there is none, or if the
    folder stands for a GGUF file itself.

    Raises CheckpointError if there are several models.
    """
    if any(folder.glob("*.safetensors")) or folder.absolute().parent == _views():
        return None
    found = sorted(folder.glob("*.gguf"))
    models = [path for path in found if _is_model(path)] or found
    if len(models) > 1:
        names = ", ".join(path.name for path in models[:8])
        raise CheckpointError(f"{folder} has {len(models)} GGUF files: give one of them ({names}).")
    return models[0] if models else None


def _download(repo: str) -> Path:
    folder = _fetch(repo, _FILES)
    if not any(folder.glob("*.safetensors")):
        raise CheckpointError(
            f"{repo} has no safetensors: if it has GGUF files, name one by its type ({repo}:Q4_0)."
        )
    return folder


def _download_gguf(repo: str, type: str) -> Path:
    """The GGUF file of a repository that has `type` in its name."""
    spellings = {type, type.lower(), type.upper()}
    patterns = [f"*{spelling}*.gguf" for spelling in sorted(spellings)]
    folder = _fetch(repo, patterns, ignore_patterns=[f"*{_PROJECTOR}*"])
    found = [path for path in sorted(folder.rglob("*.gguf")) if type.lower() in path.name.lower()]
    models = [path for path in found if _is_model(path)]
    exact = [path for path in models if _FIRST_PART.sub("", path.stem).lower().endswith(type.lower())]
    if len(models) > 1 and len(exact) == 1:
        models = exact
    if len(models) != 1:
        names = ", ".join(path.name for path in models[:8])
        what = f"several GGUF files of type {type} ({names})" if models else f"no GGUF file of type {type}"
        raise CheckpointError(
            f"{repo} has {what}: give the part of a name that only one has ({repo}:Q4_K_M)."
        )
    return models[0]


def _fetch(repo: str, allow_patterns: list[str], ignore_patterns: list[str] | None = None) -> Path:
    """The folder in the hub's cache. The library is imported here: it is slow to import and seldom needed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repo, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
    except GatedRepoError:
        reason = "its owner asks for a licence first: accept it on the model's page, then run `hf auth login`"
    except RepositoryNotFoundError:
        reason = "the hub has no such model, or your token may not see it: check the name"
    except LocalEntryNotFoundError:
        reason = "the hub cannot be reached and the model is not in the cache: go online, or give a folder"
    except (HfHubHTTPError, OSError) as error:
        reason = f"the download failed ({' '.join(str(error).split())[:200]}): try again, or give a folder"
    raise CheckpointError(f"{repo} is no folder here and cannot be fetched from the hub: {reason}.")
