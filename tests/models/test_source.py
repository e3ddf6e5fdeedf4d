"""What a person may call a model, and what is said of a name that is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

import onechip.models
from onechip.errors import CheckpointError
from onechip.models.source import resolve_model

ANSWER: Any = SimpleNamespace(headers={}, request=None)  # all that the hub's errors ask of a response


def test_acorn_lies_inside_the_package() -> None:
    folder = resolve_model("acorn")
    assert folder == Path(onechip.models.__file__).parent / "acorn"
    assert (folder / "config.json").exists()


def test_a_folder_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~") == tmp_path


def test_a_folder_named_as_a_hub_id_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "google" / "gemma").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("google/gemma") == Path("google/gemma")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such.gguf", r"/no/such\.gguf does not exist\. Served are Hugging Face"),
        ("/no/such/folder", "/no/such/folder is no folder here: give a folder, a hub id"),
        ("gemma", "gemma is no folder here"),
        ("a/b/c", "a/b/c is no folder here"),
    ],
)
def test_names_that_are_nothing(name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve_model(name)


def test_gguf_is_named_in_a_folder_and_alone(tmp_path: Path) -> None:
    gguf = tmp_path / "model-q4_0.gguf"
    gguf.touch()
    for model in (tmp_path, gguf):
        with pytest.raises(CheckpointError, match=r"model-q4_0\.gguf is a GGUF file, which comes in a later"):
            resolve_model(str(model))
    (tmp_path / "model.safetensors").touch()
    assert resolve_model(str(tmp_path)) == tmp_path


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is a file: give the folder"):
        resolve_model(str(tmp_path / "model.safetensors"))


def test_a_hub_id_is_fetched_without_other_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(repo: str, *, allow_patterns: list[str]) -> str:
        assert repo == "google/gemma-4-E2B-it"
        assert allow_patterns == ["*.safetensors", "*.json", "*.jinja"]
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert resolve_model("google/gemma-4-E2B-it") == tmp_path


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            errors.LocalEntryNotFoundError("offline"),
            "the hub cannot be reached and the model is not in the cache",
        ),
        (
            errors.RepositoryNotFoundError("404", response=ANSWER),
            "no such model",
        ),
        (
            errors.GatedRepoError("403", response=ANSWER),
            "licence first: accept it",
        ),
        (
            errors.HfHubHTTPError("500\nagain", response=ANSWER),
            r"failed \(500 again\)",
        ),
        (OSError(28, "No space left on device"), "the download failed .*No space left"),
    ],
)
def test_why_a_hub_id_cannot_be_fetched(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(
        CheckpointError, match=f"owner/name is no folder here and cannot be fetched.*{reason}"
    ):
        resolve_model("owner/name")
