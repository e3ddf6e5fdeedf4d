"""The words of --engines and --arm, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from onechip.errors import UsageError
from onechip.ladder.arms import parse
from onechip.ladder.records import Arm

URL = "http://127.0.0.1:8001/v1"


def test_the_default_is_two_arms_of_our_engine() -> None:
    assert parse("acorn", None, ()) == (
        Arm("onechip bf16", "onechip", "acorn", ("--dtype", "bf16")),
        Arm("onechip w4a16", "onechip", "acorn", ("--dtype", "w4a16")),
    )


def test_engines_and_named_arms() -> None:
    assert parse(
        "m", f"onechip, openai={URL}", ["long = onechip --dtype bf16 --context 2048", f"vLLM = openai {URL}"]
    ) == (
        Arm("onechip", "onechip", "m"),
        Arm("openai 127.0.0.1:8001", "openai", "m", url=URL),
        Arm("long", "onechip", "m", ("--dtype", "bf16", "--context", "2048")),
        Arm("vLLM", "openai", "m", url=URL),
    )


def test_named_arms_alone_leave_the_default_out() -> None:
    assert [arm.name for arm in parse("m", None, ["a = onechip"])] == ["a"]


@pytest.mark.parametrize(
    ("engines", "arms", "sentence"),
    [
        ("vllm", [], "there is no engine 'vllm'; there are onechip, openai"),
        ("onechip:int3", [], "the word is the weights' type, one of bf16, w4a16"),
        ("openai", [], "openai needs the URL of a running server"),
        ("openai:x", [], "openai needs the URL of a running server"),
        (f"onechip={URL}", [], "onechip is started by the ladder and takes no URL"),
        ("openai=8001", [], "'8001' is not the URL of a server"),
        ("openai=http://h:99999/v1", [], "is not the URL of a server"),
        ("onechip,onechip", [], "Two arms are called 'onechip'"),
        (",", [], "names no engine"),
        (None, ["onechip"], "is not understood"),
        (None, ["a = openai"], "openai takes exactly one URL"),
        (None, ["a = vllm"], "there is no engine 'vllm'"),
    ],
)
def test_what_is_wrong_is_said(engines: str | None, arms: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("m", engines, arms)
    assert sentence in caught.value.message
