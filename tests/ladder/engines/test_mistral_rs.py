"""mistral.rs's command line, and checkpoints under the names that it knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file, save_file

from onechip.errors import EngineError
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Start
from onechip.ladder.engines.mistral_rs import ENGINE, nested
from onechip.ladder.host import Host
from onechip.ladder.records import Arm

TENSORS = {
    "model.embed_tokens.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "model.layers.0.input_layernorm.weight": np.ones(5, np.float16),
    "lm_head.weight": np.zeros((2, 2), np.float32),
}
NESTED = {name.replace("model.", "model.language_model.", 1): value for name, value in TENSORS.items()}


@pytest.fixture
def text_only(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file(TENSORS, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "gemma4_text"}')
    index = {"weight_map": dict.fromkeys(TENSORS, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_a_text_checkpoint_gets_the_published_names(text_only: Path, tmp_path: Path) -> None:
    folder = nested(text_only, tmp_path / "cache")
    found = load_file(folder / "model.safetensors")
    assert found.keys() == NESTED.keys()
    for name, value in NESTED.items():
        np.testing.assert_array_equal(found[name], value)
    assert (folder / "config.json").read_text() == '{"model_type": "gemma4_text"}'
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == NESTED.keys()


def test_it_is_copied_once(text_only: Path, tmp_path: Path) -> None:
    folder = nested(text_only, tmp_path / "cache")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert nested(text_only, tmp_path / "cache") == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_published_checkpoint_is_given_as_it_is(tmp_path: Path) -> None:
    save_file(NESTED, tmp_path / "model.safetensors")
    assert nested(tmp_path, tmp_path / "cache") == tmp_path
    assert not (tmp_path / "cache").exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(EngineError, match=r"model\.safetensors is no file of tensors"):
        nested(tmp_path, tmp_path / "cache")


def launch(
    checkpoint: Path, cache: Path, *flags: str, model: str = "acorn"
) -> tuple[list[str], dict[str, str]]:
    arm = Arm("mistral.rs", "mistral.rs", model, flags)
    host = Host("linux", "x86_64", "cpu", 6, 16 << 30)
    assert ENGINE.launch is not None
    made = ENGINE.launch(Start(arm, checkpoint, 1234, cache, host, 9, 300))
    return made.command, made.environment


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = recipe.home("mistral.rs")
    (home / "lib" / "python3.11" / "site-packages" / "mistralrs-0.9.5.dist-info").mkdir(parents=True)
    (home / recipe.STAMP).write_text('{"lock": "x"}')


def test_what_is_not_installed_is_said(
    text_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(EngineError, match=r"onechip ladder install mistral\.rs"):
        launch(text_only, tmp_path / "cache")


@pytest.mark.usefixtures("installed")
def test_the_front_is_run_by_the_engines_own_python(text_only: Path, tmp_path: Path) -> None:
    assert ENGINE.version() == "0.9.5"
    command, environment = launch(text_only, tmp_path / "cache", "--dtype", "f32")
    assert command[0] == str(recipe.python("mistral.rs"))
    assert command[1] == "-I"
    assert Path(command[2]).is_file()
    assert command[command.index("--model") + 1] == str(tmp_path / "cache" / "nested")
    assert command[command.index("--requests") + 1] == "9"
    assert command[-2:] == ["--dtype", "f32"]
    assert environment == {"RAYON_NUM_THREADS": "6", "MISTRALRS_CPU_KV_F32": "1"}
    assert "MISTRALRS_CPU_KV_F32" not in launch(text_only, tmp_path / "cache", "--dtype", "bf16")[1]


@pytest.mark.usefixtures("installed")
def test_a_gguf_file_gets_the_text_models_config_and_a_projector(tmp_path: Path) -> None:
    """The config of the published checkpoint holds the text model's; the projector is a GGUF file."""
    model = tmp_path / "published"
    model.mkdir()
    config = {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}, "vision_config": {}}
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer.json").write_text("{}")
    command, _ = launch(tmp_path / "m.gguf", tmp_path / "cache", model=str(model))
    made = Path(command[command.index("--config") + 1])
    assert json.loads((made / "config.json").read_text()) == {"model_type": "gemma4_text"}
    assert (made / "tokenizer.json").is_file()
    reader = GGUFReader(command[command.index("--projector") + 1])
    assert reader.tensors == []
    assert reader.fields["clip.projector_type"].contents() == "gemma4v"


@pytest.mark.usefixtures("installed")
def test_a_gguf_file_alone_has_no_config(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(EngineError, match=r"m\.gguf only with the config\.json"):
        launch(tmp_path / "m.gguf", tmp_path / "cache", model=str(tmp_path / "m.gguf"))
