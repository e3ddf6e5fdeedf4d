"""Command lines and obstacles of engines that need another chip, or an environment that tests do not have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onechip.errors import EngineError, UsageError
from onechip.ladder import engine_commands
from onechip.ladder.engines import ENGINES, recipe
from onechip.ladder.engines.engine import Start, launch
from onechip.ladder.host import Host
from onechip.ladder.records import Arm

CPU = Host("linux", "x86_64", "cpu", 6, 16 << 30)
L4 = replace(CPU, chip="cuda", gpu="NVIDIA L4", capability=(8, 9))
P4 = replace(CPU, chip="cuda", gpu="Tesla P4", capability=(6, 1))
TPU = replace(CPU, chip="tpu")
DENSE = {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
E2B = {
    "model_type": "gemma4",
    "text_config": {"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 20},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return written(tmp_path, DENSE | {"max_position_embeddings": 2048})


def written(folder: Path, config: dict[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def start(name: str, checkpoint: Path, host: Host, *flags: str, context: int = 300) -> Start:
    cache = checkpoint / "cache"
    return Start(Arm(name, name, "acorn", flags), checkpoint, 1234, cache, host, 4, context)


def command(name: str, checkpoint: Path, host: Host, *flags: str, context: int = 300) -> list[str]:
    return launch(ENGINES[name], start(name, checkpoint, host, *flags, context=context)).command


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", ["sglang", "sglang-jax", "vllm-tpu", "vllm-torchtpu"])
def test_port_name_size_and_the_users_flags_are_given(name: str, checkpoint: Path) -> None:
    words = command(name, checkpoint, TPU, "--extra", "1")
    assert words[0] == str(recipe.python(name))
    assert after(words, "--port") == "1234"
    assert after(words, "--host") == "127.0.0.1"
    assert after(words, "--served-model-name") == "acorn"
    assert str(checkpoint) in words
    assert words[-2:] == ["--extra", "1"]


def test_no_more_context_is_asked_for_than_the_model_has(checkpoint: Path) -> None:
    assert after(command("sglang", checkpoint, L4, context=300), "--context-length") == "300"
    assert after(command("sglang", checkpoint, L4, context=9000), "--context-length") == "2048"
    assert after(command("vllm-tpu", checkpoint, TPU, context=9000), "--max-model-len") == "2048"
    assert after(command("pytorch", checkpoint, CPU, context=9000), "--context") == "2048"


def test_gemma4_gets_its_parsers_and_others_none(tmp_path: Path, checkpoint: Path) -> None:
    assert after(command("sglang", checkpoint, L4), "--tool-call-parser") == "gemma4"
    assert after(command("vllm-tpu", checkpoint, TPU), "--reasoning-parser") == "gemma4"
    llama = written(tmp_path, {"model_type": "llama", "max_position_embeddings": 2048})
    assert "--tool-call-parser" not in command("sglang", llama, L4)
    assert "--reasoning-parser" not in command("vllm-tpu", llama, TPU)


def test_compiled_programs_are_kept_in_the_starts_cache(checkpoint: Path) -> None:
    for name, variable in (
        ("sglang", "TRITON_CACHE_DIR"),
        ("sglang-jax", "JAX_COMPILATION_CACHE_DIR"),
        ("vllm-tpu", "VLLM_XLA_CACHE_PATH"),
    ):
        environment = launch(ENGINES[name], start(name, checkpoint, TPU)).environment
        assert environment[variable].startswith(str(checkpoint / "cache"))


def test_sglang_jax_has_flags_for_each_chip(checkpoint: Path) -> None:
    on_tpu, on_cpu = command("sglang-jax", checkpoint, TPU), command("sglang-jax", checkpoint, CPU)
    assert after(on_tpu, "--page-size") == "128"
    assert after(on_tpu, "--watchdog-timeout") == "7200"
    assert "--disable-hybrid-swa-memory" in on_cpu
    assert "--page-size" not in on_cpu


@pytest.mark.parametrize("config", [E2B, DENSE | {"num_kv_shared_layers": 2}])
def test_sglang_jax_refuses_e2bs_architecture_on_a_processor(
    tmp_path: Path, config: dict[str, object]
) -> None:
    with pytest.raises(EngineError, match="acorn has them"):
        command("sglang-jax", written(tmp_path, config), CPU)


def test_sglang_jax_is_found_where_its_install_sentence_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine = ENGINES["sglang-jax"]
    assert engine.version() is None
    packages = recipe.home("sglang-jax") / "lib" / "python3.12" / "site-packages"
    (packages / "sglang_jax-0.1.0.dev7.dist-info").mkdir(parents=True)
    assert engine.version() == "0.1.0.dev7"


def test_rust_is_installed_once_its_binary_is_linked(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine = ENGINES["rust-pjrt"]
    said = engine.hindrance(TPU)
    assert said is not None
    assert "No package of it exists" in said
    binary = recipe.program("rust-pjrt", "rust-pjrt")
    binary.parent.mkdir(parents=True)
    binary.touch()
    assert engine.hindrance(TPU) is None
    words = command("rust-pjrt", checkpoint, TPU, "--int8")
    assert words[0] == str(binary)
    assert after(words, "--port") == "1234"
    assert words[-1] == "--int8"


@pytest.mark.parametrize(
    ("name", "here", "elsewhere"),
    [
        ("sglang", {L4}, {CPU, P4, TPU}),
        ("sglang-jax", {CPU, TPU}, {L4}),
        ("vllm-tpu", {TPU}, {CPU, L4}),
        ("vllm-torchtpu", {TPU}, {CPU, L4}),
        ("rust-pjrt", {TPU}, {CPU, L4}),
        ("litert-lm", {CPU, L4}, {TPU}),
        ("pytorch", {CPU, L4}, {TPU}),
    ],
)
def test_obstacles_are_one_sentence(name: str, here: set[Host], elsewhere: set[Host]) -> None:
    assert all(ENGINES[name].obstacle(host) is None for host in here)
    for host in elsewhere:
        said = ENGINES[name].obstacle(host)
        assert said is not None
        assert said.endswith(".")
        assert said.count(". ") == 0


def test_pytorch_runs_in_the_environment_of_transformers(checkpoint: Path) -> None:
    words = command("pytorch", checkpoint, CPU, "--dtype", "float32")
    assert words[0] == str(recipe.python("transformers"))
    assert after(words, "--rows") == "4"
    assert after(words, "--threads") == "6"
    assert words[-2:] == ["--dtype", "float32"]
    assert ENGINES["pytorch"].recipe == ENGINES["transformers"].recipe


def test_what_others_use_is_not_removed_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe.home("transformers").mkdir(parents=True)
    with pytest.raises(UsageError, match="environment of transformers"):
        engine_commands.uninstall(["pytorch"])
    assert recipe.home("transformers").is_dir()
