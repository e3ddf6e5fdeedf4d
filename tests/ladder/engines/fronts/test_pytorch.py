"""The plain PyTorch loop without PyTorch: who holds which row, when a request ends, what clients are told."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tokenizers

import onechip.ladder.engines
from onechip.models.source import resolve_model

FRONT = Path(onechip.ladder.engines.__file__).parent / "fronts" / "pytorch.py"
END, WORD = 106, 300
CONTEXT = 40


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The front as a module, over modules that stand in for torch and transformers."""
    torch, transformers = ModuleType("torch"), ModuleType("transformers")
    vars(transformers).update(AutoModelForCausalLM=None, AutoTokenizer=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    spec = importlib.util.spec_from_file_location("front_pytorch", FRONT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "front_pytorch", module)
    spec.loader.exec_module(module)
    return module


class Tokenizer:
    backend_tokenizer = tokenizers.Tokenizer.from_file(str(resolve_model("acorn") / "tokenizer.json"))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        return "".join(message["content"] for message in messages)


def model() -> SimpleNamespace:
    config = SimpleNamespace(layer_types=["full_attention"])
    return SimpleNamespace(
        device="cpu",
        config=SimpleNamespace(get_text_config=lambda: config),
        generation_config=SimpleNamespace(eos_token_id=[1, END]),
        get_input_embeddings=lambda: SimpleNamespace(num_embeddings=2048),
    )


class Moves:
    """A cache that writes down which rows were moved."""

    def __init__(self) -> None:
        self.moved: list[tuple[int, int, int]] = []

    def move(self, source: int, target: int, length: int) -> None:
        self.moved.append((source, target, length))


def engine(front: Any) -> tuple[Any, Any]:
    loop = front.Loop(model(), 4, CONTEXT)
    loop.cache = Moves()
    return loop, front.Service(loop, Tokenizer(), "acorn")


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def started(loop: Any, service: Any, *lengths: int) -> list[Any]:
    """Running requests with prompts of these lengths, each with one token out."""
    loop.events = SimpleNamespace(call_soon_threadsafe=lambda tell, said: tell(said))
    loop.running = [service.read({"prompt": [5] * length, "max_tokens": 3}, False) for length in lengths]
    loop.finish_step([WORD] * len(lengths), Tokenizer(), 0)
    return list(loop.running)


def test_the_last_row_takes_the_place_of_one_that_ends(front: Any) -> None:
    loop, service = engine(front)
    a, b, c = started(loop, service, 4, 6, 8)
    loop.finish_step([END, WORD, WORD], Tokenizer(), 0)
    assert loop.running == [c, b]
    # Of c, the prompt and the first token are in the cache; its second token is not yet.
    assert loop.cache.moved == [(2, 0, 9)]
    assert [a.pieces.get_nowait()[1], a.pieces.get_nowait()[1]] == [None, "stop"]
    loop.finish_step([WORD, WORD], Tokenizer(), 0)
    assert loop.running == []
    assert [c.pieces.get_nowait()[1] for _ in range(3)] == [None, None, "length"]


def test_a_client_that_left_frees_its_row(front: Any) -> None:
    loop, service = engine(front)
    first, second = started(loop, service, 4, 4)
    first.cancelled = True
    loop.finish_step([WORD, WORD], Tokenizer(), 0)
    assert loop.running == [second]


def test_the_end_is_ignored_where_that_is_asked_for_but_not_the_context(front: Any) -> None:
    loop, service = engine(front)
    generation = service.read({"prompt": [5] * (CONTEXT - 2), "max_tokens": 2, "ignore_eos": True}, False)
    generation.tokens = [END]
    assert loop.end(generation) is None
    generation.tokens = [END, END]
    assert loop.end(generation) == "length"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"prompt": "a", "top_p": 0.5}, "top_p"),
        ({"prompt": "a", "temperature": 1}, "greedy"),
        ({"prompt": ""}, "token ids"),
        ({"prompt": [5, 2048]}, "below 2048"),
        ({"prompt": [[5], [6]]}, "token ids"),
        ({"prompt": [5] * 38, "max_tokens": 3}, "do not fit"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(front: Any, body: dict[str, Any], word: str) -> None:
    with pytest.raises(front.Refused, match=word):
        engine(front)[1].read(body, "messages" in body)


def test_a_stream_has_an_event_a_token_and_counts(front: Any) -> None:
    _, service = engine(front)

    async def ask() -> list[Any]:
        generation = service.read({"messages": [{"role": "user", "content": "Hello"}]}, True)
        generation.tokens = [WORD, WORD, END]
        for piece in (("one", None), ("", None), ("", "stop")):
            generation.pieces.put_nowait(piece)
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = [event async for event in service.stream(generation, True, options)]
        assert generation.cancelled
        assert events.pop() == "data: [DONE]\n\n"
        return [json.loads(event.removeprefix("data: ")) for event in events]

    role, *tokens, end, usage = run(ask())
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert [event["choices"][0]["delta"]["content"] for event in tokens] == ["one", "", ""]
    assert [event["usage"]["completion_tokens"] for event in tokens] == [1, 2, 3]
    assert end["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
