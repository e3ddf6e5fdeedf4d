"""What a person calls a model in; out comes the folder that its checkpoint is in, fetched if need be."""

from __future__ import annotations

import re
from pathlib import Path

from onechip.errors import CheckpointError

_ACORN = Path(__file__).parent / "acorn"
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_FILES = ["*.safetensors", "*.json", "*.jinja"]
_SERVED = "Served are Hugging Face folders in safetensors: bf16, or compressed-tensors W4A16."


def resolve_model(model: str) -> Path:
    """The checkpoint folder of "acorn" (inside the package), of a folder, or of a Hugging Face hub id.

    A hub id is downloaded into the hub's own cache, weights, JSON and template only. Raises CheckpointError
    saying what `model` is not, or why it could not be fetched.
    """
    if model == "acorn":
        return _ACORN
    path = Path(model).expanduser()
    if path.is_dir():
        if gguf := _only_gguf(path):
            raise CheckpointError(f"{gguf} is a GGUF file, which comes in a later version. {_SERVED}")
        return path
    if path.suffix == ".gguf":
        what = "is a GGUF file, which comes in a later version" if path.exists() else "does not exist"
        raise CheckpointError(f"{model} {what}. {_SERVED}")
    if path.exists():
        raise CheckpointError(f"{model} is a file: give the folder that holds config.json and the weights.")
    if not _HUB_ID.fullmatch(model):
        raise CheckpointError(f"{model} is no folder here: give a folder, a hub id (owner/name), or acorn.")
    return _download(model)


def _only_gguf(folder: Path) -> Path | None:
    """The first GGUF file of a folder that has no safetensors."""
    if any(folder.glob("*.safetensors")):
        return None
    return next(iter(sorted(folder.glob("*.gguf"))), None)


def _download(repo: str) -> Path:
    """The folder in the hub's cache. The library is imported here: it is slow to import and seldom needed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repo, allow_patterns=_FILES))
    except GatedRepoError:
        reason = "its owner asks for a licence first: accept it on the model's page, then run `hf auth login`"
    except RepositoryNotFoundError:
        reason = "the hub has no such model, or your token may not see it: check the name"
    except LocalEntryNotFoundError:
        reason = "the hub cannot be reached and the model is not in the cache: go online, or give a folder"
    except (HfHubHTTPError, OSError) as error:
        reason = f"the download failed ({' '.join(str(error).split())[:200]}): try again, or give a folder"
    raise CheckpointError(f"{repo} is no folder here and cannot be fetched from the hub: {reason}.")
