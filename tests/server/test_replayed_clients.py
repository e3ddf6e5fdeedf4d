"""Random answers as the real clients put them together from our streams, in every protocol.

Written by made_answers.py, read back by openai, anthropic and ollama.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import pytest
from starlette.types import ASGIApp

from onechip.models.chat_template import ChatTemplate
from tests.models.fuzz_chat_parser import Outcome
from tests.models.made_answers import ENDS, Answer, answer, ids_of, windows
from tests.server.replay import Replay
from tests.server.scripted import ACORN, TOKENIZER

CASES = 40
NEEDS_SCHEMA = {"bare strings", "quoted scalars"}
"""Oddities that the schema mends; ollama's client sends only the uppermost members of it."""

HI: Any = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    template = ChatTemplate.load(ACORN)
    assert template is not None
    made = Replay(TOKENIZER, template)
    yield made
    made.close()


def functions(made: Answer) -> list[dict[str, Any]]:
    return [tool["function"] for tool in made.tools]


@functools.cache
def openai_client(app: ASGIApp) -> openai.AsyncOpenAI:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    return openai.AsyncOpenAI(base_url="http://replay/v1", api_key="none", http_client=http, max_retries=0)


async def chat(app: ASGIApp, made: Answer) -> Outcome:
    ask: Any = {"model": "acorn", "messages": HI, "tools": made.tools}
    async with openai_client(app).chat.completions.stream(**ask) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return Outcome(message.content or "", (message.model_extra or {}).get("reasoning_content", ""), calls)


async def responses(app: ASGIApp, made: Answer) -> Outcome:
    tools: Any = [{"type": "function", "parameters": None, "strict": False, **one} for one in functions(made)]
    ask: Any = {"model": "acorn", "input": "Hi", "tools": tools, "store": False}
    async with openai_client(app).responses.stream(**ask) as stream:
        output = (await stream.get_final_response()).output
    texts = {
        type: "".join(part.text for item in output if item.type == type for part in item.content or ())
        for type in ("message", "reasoning")
    }
    calls = [(item.name, item.arguments) for item in output if item.type == "function_call"]
    return Outcome(texts["message"], texts["reasoning"], calls)


@functools.cache
def anthropic_client(app: ASGIApp) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return anthropic.AsyncAnthropic(base_url="http://replay", api_key="none", http_client=http)


async def messages(app: ASGIApp, made: Answer) -> Outcome:
    tools: Any = [
        {"name": one["name"], "input_schema": one.get("parameters", {"type": "object"})}
        for one in functions(made)
    ]
    ask: Any = {"model": "acorn", "messages": HI, "tools": tools, "max_tokens": 100_000}
    async with anthropic_client(app).messages.stream(**ask) as stream:
        content = (await stream.get_final_message()).content
    text = "".join(block.text for block in content if block.type == "text")
    thoughts = "".join(block.thinking for block in content if block.type == "thinking")
    return Outcome(text, thoughts, [(b.name, json.dumps(b.input)) for b in content if b.type == "tool_use"])


@functools.cache
def ollama_client(app: ASGIApp) -> ollama.AsyncClient:
    return ollama.AsyncClient("http://replay", transport=httpx.ASGITransport(app))


async def ollama_chat(app: ASGIApp, made: Answer) -> Outcome:
    text, thoughts, calls = "", "", []
    async for part in await ollama_client(app).chat("acorn", HI, tools=made.tools, stream=True):
        text += part.message.content or ""
        thoughts += part.message.thinking or ""
        calls += [
            (c.function.name, json.dumps(dict(c.function.arguments))) for c in part.message.tool_calls or ()
        ]
    return Outcome(text, thoughts, calls)


Client = Callable[[ASGIApp, Answer], Awaitable[Outcome]]


@pytest.fixture(params=[chat, responses, messages, ollama_chat])
def client(request: pytest.FixtureRequest) -> Client:
    made: Client = request.param
    return made


def compare(replay: Replay, client: Client, made: Answer, rng: random.Random) -> None:
    """What the client puts together is what was written."""
    parts = windows(ids_of([*made.pieces, made.end], TOKENIZER, rng), rng)
    found = replay.play(parts, client(replay.app, made))
    assert (found.text, found.reasoning) == (made.text, "".join(made.thoughts)), made
    expected = [(name, json.dumps(arguments)) for name, arguments in made.calls]
    assert [(name, json.dumps(json.loads(arguments))) for name, arguments in found.calls] == expected, made


def test_random_answers(replay: Replay, client: Client) -> None:
    for case in range(CASES):
        rng = random.Random(f"clients:{case}")
        made = answer(rng)
        while made.opened or (client is ollama_chat and made.odd & NEEDS_SCHEMA):
            made = answer(rng)
        compare(replay, client, made, rng)


def test_what_unicode_takes_for_the_end_of_a_line_ends_none(replay: Replay, client: Client) -> None:
    """Python's splitlines does, by which the ollama package reads lines."""
    text = "a\x85b\u2028c\u2029d\x0be\x1ef"
    made = Answer([{"type": "function", "function": {"name": "f"}}], False, frozenset(), ENDS[0])
    made.text, made.calls = text, [("f", {"s": text})]
    made.write(text)
    made.write_call(random.Random(1), {"name": "f"}, {"s": text})
    compare(replay, client, made, random.Random(1))
