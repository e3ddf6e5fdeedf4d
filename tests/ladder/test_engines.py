"""What engines are launched with, whether they can be, and what `ladder list` says of them."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from onechip.errors import EngineError, UsageError
from onechip.ladder import folder as folders
from onechip.ladder import listing
from onechip.ladder.arms import check_ready, parse
from onechip.ladder.engines import ENGINES, engine, recipe, transformers, vllm
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.host import Host, this_host
from onechip.ladder.plan import Plan
from onechip.ladder.records import Arm

CPU = Host("linux", "x86_64", "cpu", 2, 24 << 30)
CARD = Host("linux", "x86_64", "cuda", 8, 64 << 30, "NVIDIA T4", (7, 5))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Of a Gemma 4 whose context is 512."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = {"max_position_embeddings": 512, "num_hidden_layers": 35, "num_key_value_heads": 1}
    text |= {"head_dim": 256, "global_head_dim": 512}
    config = {"model_type": "gemma4", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    arm = Arm("x", "vllm", "m", ("--dtype", "bfloat16", "--seed", "7"))
    return Start(arm, tmp_path, 4321, tmp_path / "compiled", CPU, 64, 1000)


def after(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def test_vllm(start: Start, tmp_path: Path) -> None:
    launch = engine.launch(vllm.ENGINE, start)
    assert launch.command[:2] == [str(tmp_path / "onechip/engines/vllm/bin/python"), "-I"]
    assert after(launch.command, "--model") == str(tmp_path)
    assert after(launch.command, "--port") == "4321"
    assert after(launch.command, "--max-model-len") == "512"
    assert after(launch.command, "--max-num-seqs") == "64"
    assert after(launch.command, "--tool-call-parser") == "gemma4"
    assert launch.command[-4:] == ["--dtype", "bfloat16", "--seed", "7"]
    assert launch.environment["VLLM_CACHE_ROOT"] == str(tmp_path / "compiled")
    assert launch.environment["VLLM_CPU_KVCACHE_SPACE"] == "3"  # 2.2 GiB: 64 x 512 tokens of 70 KiB
    assert launch.environment["VLLM_CPU_NUM_OF_RESERVED_CPU"] == "0"


def test_vllm_on_a_processor_is_given_intels_openmp_where_it_has_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "LD_PRELOAD" not in engine.launch(vllm.ENGINE, start).environment
    library = tmp_path / "onechip/engines/vllm/lib/libiomp5.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert engine.launch(vllm.ENGINE, start).environment["LD_PRELOAD"] == str(library)
    monkeypatch.setenv("LD_PRELOAD", "/mine.so")
    assert engine.launch(vllm.ENGINE, start).environment["LD_PRELOAD"] == f"{library}:/mine.so"
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libgomp.so.1")
    assert "LD_PRELOAD" not in engine.launch(vllm.ENGINE, start).environment, "two of them end its start"
    monkeypatch.delenv("LD_PRELOAD")
    card = dataclasses.replace(start, host=CARD)
    assert "LD_PRELOAD" not in engine.launch(vllm.ENGINE, card).environment


def test_vllm_on_a_card_and_for_another_family(start: Start, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    launch = engine.launch(vllm.ENGINE, dataclasses.replace(start, host=CARD))
    assert not any(name.startswith("VLLM_CPU") for name in launch.environment)
    assert "--tool-call-parser" not in launch.command
    assert after(launch.command, "--max-model-len") == "1000"


def test_vllm_says_where_it_does_not_run() -> None:
    assert vllm.ENGINE.obstacle(CPU) is None
    assert vllm.ENGINE.obstacle(CARD) is None
    old = dataclasses.replace(CARD, gpu="Tesla P4", capability=(6, 1))
    assert "Tesla P4 has compute capability 6.1" in (vllm.ENGINE.obstacle(old) or "")
    assert "for Linux" in (vllm.ENGINE.obstacle(dataclasses.replace(CPU, system="darwin")) or "")


def test_the_honest_and_the_fast_word_differ_in_one_variable(start: Start) -> None:
    exact, fast = parse("m", "vllm:w4a16,vllm:w4a8", [])
    assert exact.form == fast.form == "w4a16"
    assert "int8 activations" in fast.remark
    assert not exact.remark
    whole = dataclasses.replace(
        start, host=dataclasses.replace(CPU, flags=frozenset({"avx512f", "amx_tile"}))
    )
    launches = [engine.launch(vllm.ENGINE, dataclasses.replace(whole, arm=arm)) for arm in (exact, fast)]
    assert launches[0].command == launches[1].command
    assert launches[0].environment == launches[1].environment | {"VLLM_CPU_INT4_W4A8": "0"}


@pytest.mark.parametrize(
    ("word", "flags", "lacks"), [("w4a16", {"avx2"}, "avx512f"), ("w4a8", {"avx512f"}, "amx_tile")]
)
def test_a_processor_without_vllms_int4_kernels(word: str, flags: set[str], lacks: str, start: Start) -> None:
    (arm,) = parse("m", f"vllm:{word}", [])
    host = dataclasses.replace(CPU, flags=frozenset(flags))
    with pytest.raises(EngineError, match=f"need a processor with {lacks}, which this one lacks"):
        engine.launch(vllm.ENGINE, dataclasses.replace(start, arm=arm, host=host))
    engine.launch(vllm.ENGINE, dataclasses.replace(start, arm=arm, host=CARD))


def test_transformers(start: Start, tmp_path: Path) -> None:
    launch = engine.launch(transformers.ENGINE, start)
    assert str(tmp_path) in launch.command
    assert launch.command[-4:] == ["--dtype", "bfloat16", "--seed", "7"]
    assert launch.environment["HF_HUB_OFFLINE"] == "1"


def test_words_of_an_arm_that_are_variables(start: Start) -> None:
    """As in a shell; the user's go over the engine's own."""
    words = ("OMP_NUM_THREADS=1", "--a=B", "--seed", "7", "VLLM_CPU_KVCACHE_SPACE=9", '{"A=": 1}')
    arm = Arm("x", "vllm", "m", words)
    launch = engine.launch(vllm.ENGINE, dataclasses.replace(start, arm=arm))
    assert launch.command[-4:] == ["--a=B", "--seed", "7", '{"A=": 1}']
    assert launch.environment["OMP_NUM_THREADS"] == "1"
    assert launch.environment["VLLM_CPU_KVCACHE_SPACE"] == "9"


def test_a_remark_is_said_of_its_arm_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    made = Arm("a", "onechip", str(tmp_path), form="w4a16", remark="int8 activations")
    plain = Arm("b", "onechip", str(tmp_path))
    manifest = folders.create(tmp_path / "out", Plan(str(tmp_path), (made, plain), jobs=("one",)))
    assert manifest.arm("a").notes == ["Int8 activations."]
    assert manifest.arm("b").notes == []
    assert manifest.arm("a").checkpoint == {}, "it is made when its turn has come"
    assert manifest.arm("b").checkpoint == manifest.source != {}


def peer(version: str | None, obstacle: str | None, **more: object) -> Engine:
    return Engine(
        "peer",
        "scripted",
        {"plain": Variant()},
        lambda: version,
        lambda start: Launch([]),
        obstacle=lambda host: obstacle,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (peer(None, None, install="Build it."), "peer is not installed. Build it."),
        (peer("1", "No TPU."), "peer does not run here: No TPU."),
        (
            peer(None, None, recipe=recipe.Recipe("peer", ("3.11",), 1, 1, ())),
            "peer is not installed. Run: onechip ladder install peer",
        ),
    ],
)
def test_an_arm_that_cannot_start_is_refused_first(
    found: Engine, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENGINES, "peer", found)
    with pytest.raises(UsageError) as caught:
        check_ready(parse("m", "onechip,peer", []))
    assert caught.value.message == sentence


def test_arms_that_can_start() -> None:
    arms = parse("m", "onechip:bf16,openai=http://127.0.0.1:1/v1", [])
    assert check_ready(arms) == arms


def test_the_list_fits_and_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    console = Console(width=100, record=True, file=io.StringIO())
    listing.show(console)
    said = console.export_text()
    assert max(len(line) for line in said.splitlines() if "get it" not in line) <= 100
    for found in ENGINES.values():
        assert f"\n{found.name}  " in said
    assert "\nvllm  not installed" in said
    assert "onechip ladder install vllm" in said


def test_what_is_to_be_copied_is_in_one_piece(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    console = Console(width=80, record=True, file=io.StringIO())
    listing.show(console)
    said = console.export_text()
    assert "…" not in said
    for found in ENGINES.values():
        if found.version() is None:
            assert listing.facts(found, this_host())["install"] in said


def test_the_list_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "peer", peer("1.2", "No TPU.", tools="yes"))
    listing.show_json()
    said = json.loads(capsys.readouterr().out)
    assert said["host"]["platform"] == this_host().platform
    (found,) = [each for each in said["engines"] if each["name"] == "peer"]
    assert found["installed"]
    assert found["version"] == "1.2"
    assert not found["runs_here"]
    assert found["obstacle"] == "No TPU."
    assert found["tools"] == "yes"
    assert found["words"] == {"plain": {"form": "", "flags": [], "remark": ""}}
