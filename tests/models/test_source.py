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
from tests.models.gguf_files import close, write, writer

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
        ("/no/such.gguf", r"/no/such\.gguf does not exist\."),
        ("/no/such/folder", r"/no/such/folder is no folder here: give a folder, a \.gguf file, a hub id"),
        ("gemma", "gemma is no folder here"),
        ("a/b/c", "a/b/c is no folder here"),
    ],
)
def test_names_that_are_nothing(name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        resolve_model(name)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_gguf_file_alone_or_in_a_folder(tmp_path: Path, cache: Path) -> None:
    """One folder in the cache stands for both, and for itself; a projector beside it is not the model."""
    models = tmp_path / "models"
    models.mkdir()
    gguf = write(models / "model.gguf", "llama")
    (models / "mmproj-model.gguf").touch()
    (models / "config.json").touch()
    folder = resolve_model(str(gguf))
    assert folder.parent == cache / "onechip" / "gguf"
    assert resolve_model(str(models)) == resolve_model(str(folder)) == folder
    (models / "model.safetensors").touch()
    assert resolve_model(str(models)) == models


def test_a_folder_with_several_gguf_files_needs_a_choice(tmp_path: Path) -> None:
    for name in ("a-Q4_0.gguf", "a-Q8_0.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(
        CheckpointError, match=r"has 2 GGUF files: give one of them \(a-Q4_0\.gguf, a-Q8_0\.gguf"
    ):
        resolve_model(str(tmp_path))


def test_a_folder_with_a_projector_alone(tmp_path: Path, cache: Path) -> None:
    file = writer(tmp_path / "mmproj-x.gguf", "clip", {})
    close(file)
    with pytest.raises(CheckpointError, match="is a projector for images or sound"):
        resolve_model(str(tmp_path))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors is a file: give a \.gguf file, or the folder"
    ):
        resolve_model(str(tmp_path / "model.safetensors"))


def test_a_hub_id_is_fetched_without_other_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(repo: str, *, allow_patterns: list[str], ignore_patterns: None) -> str:
        assert repo == "google/gemma-4-E2B-it"
        assert allow_patterns == ["*.safetensors", "*.json", "*.jinja"]
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(CheckpointError, match=r"gemma-4-E2B-it has no safetensors: .*gemma-4-E2B-it:Q4_0"):
        resolve_model("google/gemma-4-E2B-it")
    (tmp_path / "model.safetensors").touch()
    assert resolve_model("google/gemma-4-E2B-it") == tmp_path


def test_a_gguf_file_on_the_hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(repo: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert repo == "owner/name-GGUF"
        assert "*Q4_0*.gguf" in allow_patterns
        assert ignore_patterns == ["*mmproj*"]
        return str(tmp_path / "hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    (tmp_path / "hub").mkdir()
    with pytest.raises(CheckpointError, match="owner/name-GGUF has no GGUF file of type q4_0: give the part"):
        resolve_model("owner/name-GGUF:q4_0")
    gguf = write(tmp_path / "hub" / "name-Q4_0.gguf", "llama")
    (tmp_path / "hub" / "name-Q4_0_4_4.gguf").touch()
    (tmp_path / "hub" / "name-Q8_0.gguf").touch()
    assert resolve_model("owner/name-GGUF:q4_0") == resolve_model(str(gguf))
    (tmp_path / "hub" / "other-Q4_0.gguf").touch()
    with pytest.raises(CheckpointError, match="has several GGUF files of type Q4_0"):
        resolve_model("owner/name-GGUF:Q4_0")


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
