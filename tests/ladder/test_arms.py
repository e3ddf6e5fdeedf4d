"""The words of --engines and --arm, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from onechip.errors import UsageError
from onechip.ladder.arms import parse
from onechip.ladder.engines import ENGINES
from onechip.ladder.engines.engine import Engine, Launch, Variant
from onechip.ladder.engines.onechip import INT8
from onechip.ladder.records import Arm

URL = "http://127.0.0.1:8001/v1"


def test_the_default_is_two_arms_of_our_engine() -> None:
    assert parse("acorn", None, ()) == (
        Arm("onechip bf16", "onechip", "acorn", ("--dtype", "bf16"), form="bf16"),
        Arm("onechip int4", "onechip", "acorn", form="w4a16", remark=INT8),
    )


def test_engines_and_named_arms() -> None:
    arms = ["long = onechip:bf16 --context 2048", "mine = onechip --dtype f32", f"vLLM = openai {URL}"]
    assert parse("m", f"onechip, openai={URL}", arms) == (
        Arm("onechip", "onechip", "m"),
        Arm("openai 127.0.0.1:8001", "openai", "m", url=URL),
        Arm("long", "onechip", "m", ("--dtype", "bf16", "--context", "2048"), form="bf16"),
        Arm("mine", "onechip", "m", ("--dtype", "f32")),
        Arm("vLLM", "openai", "m", url=URL),
    )


def test_a_word_gives_form_flags_and_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"plain": Variant("gguf-bf16"), "small": Variant("gguf-q4_0", ("--kv", "q8"), "an 8-bit cache")}
    peer = Engine("peer", "", words, lambda: None, lambda start: Launch([]))
    monkeypatch.setitem(ENGINES, "peer", peer)
    assert parse("m", "peer,peer:small", ["x = peer:small --kv f16"]) == (
        Arm("peer", "peer", "m", form="gguf-bf16"),
        Arm("peer small", "peer", "m", ("--kv", "q8"), form="gguf-q4_0", remark="an 8-bit cache"),
        Arm("x", "peer", "m", ("--kv", "q8", "--kv", "f16"), form="gguf-q4_0", remark="an 8-bit cache"),
    )


def test_named_arms_alone_leave_the_default_out() -> None:
    assert [arm.name for arm in parse("m", None, ["a = onechip"])] == ["a"]


@pytest.mark.parametrize(
    ("engines", "arms", "sentence"),
    [
        (None, ["a = onechip --note 'x"], "cannot be read (No closing quotation): close its quotes"),
        (None, ["a = llama.cpp:q4_0 --port 1"], "--arm 'a' has --port: the ladder chooses where llama.cpp"),
        (None, ["a = vllm --host=0.0.0.0"], "--arm 'a' has --host: the ladder chooses"),
        (None, ["a = llama.cpp --api-key sk-1"], "--arm 'a' has --api-key: the ladder chooses"),
        (None, ["a = llama.cpp LLAMA_ARG_PORT=1"], "--arm 'a' has LLAMA_ARG_PORT: the ladder chooses"),
        (None, ["a = vllm VLLM_API_KEY=sk-1"], "has VLLM_API_KEY, which the results would keep"),
        ("vlm", [], "there is no engine 'vlm'; there are onechip, "),
        ("onechip:int3", [], "onechip takes one of these words: auto, bf16, "),
        (None, ["a = onechip:int3 --context 8"], "onechip takes one of these words"),
        ("openai", [], "openai needs the URL of a running server"),
        ("openai:x", [], "openai needs the URL of a running server"),
        (f"onechip={URL}", [], "onechip is started by the ladder and takes no URL"),
        ("openai=8001", [], "'8001' is not the URL of a server"),
        ("openai=http://h:99999/v1", [], "is not the URL of a server"),
        ("openai=http://h..b:80/v1", [], "is not the URL of a server"),
        ("onechip,onechip", [], "Two arms are called 'onechip'"),
        (",", [], "names no engine"),
        (None, ["onechip"], "is not understood"),
        (None, ["a = openai"], "openai takes exactly one URL"),
        (None, ["a = vlm"], "there is no engine 'vlm'"),
    ],
)
def test_what_is_wrong_is_said(engines: str | None, arms: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("m", engines, arms)
    assert sentence in caught.value.message
