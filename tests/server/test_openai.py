"""The real `openai` package against a real `onechip serve acorn`, as a user runs it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.server.process import PROBLEM, TOOLS, Process
from tests.server.scripted import wait_until

ASK: list[Any] = [{"role": "user", "content": PROBLEM}]
ENDLESS = 3900
"""Tokens of an answer that is still being written when something is done to it: nearly acorn's whole context,
which takes it as little as 0.6 s alone, 1 s beside 3 others and 5 s beside 31.
"""
ON_AND_ON = {"ignore_eos": True}


@pytest.fixture(scope="session")
def client(served: Process) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def whole(client: openai.OpenAI, **kwargs: Any) -> Any:
    options = {"model": "acorn", "messages": ASK, "temperature": 0} | kwargs
    return client.chat.completions.create(**options)


def collected(client: openai.OpenAI, **kwargs: Any) -> tuple[str, list[Any]]:
    """Text of a stream, and all its chunks."""
    chunks = list(whole(client, stream=True, **kwargs))
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), chunks


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["acorn"]
    assert client.models.retrieve("acorn").id == "acorn"


def test_a_problem_is_solved(client: openai.OpenAI) -> None:
    reply = whole(client)
    choice = reply.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "stop"
    assert re.search(r"#### \d+$", choice.message.content)
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_a_conversation_that_goes_on_says_how_much_of_it_was_cached(client: openai.OpenAI) -> None:
    first = whole(client)
    said = [*ASK, {"role": "assistant", "content": first.choices[0].message.content}]
    reply = whole(client, messages=[*said, {"role": "user", "content": "And twice as many?"}])
    cached = reply.usage.prompt_tokens_details.cached_tokens
    assert first.usage.total_tokens - 2 <= cached < reply.usage.prompt_tokens


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    whole(client)  # so that both find it in the cache
    reply = whole(client)
    text, chunks = collected(client, stream_options={"include_usage": True})
    assert text == reply.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-2:] == [None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage == reply.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_the_stream_helper_of_the_client(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="acorn", messages=ASK, temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole(client).choices[0].message.content


def test_completions_with_text_and_with_ids(client: openai.OpenAI, served: Process) -> None:
    chat = whole(client).choices[0].message.content
    prompt = f"<|turn>user\n{PROBLEM}<turn|>\n<|turn>model\n"
    reply = client.completions.create(model="acorn", prompt=prompt, temperature=0)
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == (chat, "stop")
    ids = served.tokenize({"messages": ASK})
    again = client.completions.create(model="acorn", prompt=ids, temperature=0)
    assert again.choices[0].text == chat
    assert again.usage == reply.usage
    stream = client.completions.create(model="acorn", prompt=ids, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == chat


def test_lengths(client: openai.OpenAI) -> None:
    reply = whole(client, max_completion_tokens=5)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 5)
    reply = whole(client, max_tokens=100, extra_body={"ignore_eos": True})
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 100)
    reply = whole(client, extra_body={"min_tokens": 90})
    assert reply.usage.completion_tokens > 90


def test_seeds(client: openai.OpenAI) -> None:
    texts = [
        whole(client, temperature=2, seed=seed, max_tokens=60).choices[0].message.content
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_stop_strings(client: openai.OpenAI) -> None:
    full = whole(client).choices[0].message.content
    reply = whole(client, stop=["\n####", "never"])
    assert reply.choices[0].message.content == full[: full.index("\n####")]
    assert reply.choices[0].finish_reason == "stop"
    assert collected(client, stop="\n####")[0] == reply.choices[0].message.content


def test_a_tool_is_called_and_its_result_is_taken(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Order 8 plates of salad."}]
    reply = whole(client, messages=messages, tools=TOOLS)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    arguments = json.loads(call.function.arguments)
    assert arguments
    # Streamed, the same.
    chunks = collected(client, messages=messages, tools=TOOLS)[1]
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    assert parts[0].function.name == call.function.name
    assert parts[0].id
    assert json.loads("".join(part.function.arguments for part in parts)) == arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    # The message can be handed back as it is, with a result.
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    again = whole(client, messages=[*messages, choice.message, result], tools=TOOLS, max_tokens=20)
    assert again.usage.prompt_tokens > reply.usage.prompt_tokens


def test_errors_are_the_clients_own(client: openai.OpenAI, served: Process) -> None:
    with pytest.raises(openai.NotFoundError, match="served is 'acorn'"):
        whole(client, model="gpt-9")
    with pytest.raises(openai.BadRequestError) as caught:
        whole(client, extra_body={"top_q": 1})
    assert (caught.value.param, caught.value.code) == ("top_q", "unknown_parameter")
    named: Any = {"type": "function", "function": {"name": "other"}}
    with pytest.raises(openai.BadRequestError, match="names 'other', which is not in tools"):
        whole(client, tools=TOOLS, tool_choice=named)
    context = client.models.retrieve("acorn").model_extra["max_model_len"]
    with pytest.raises(openai.BadRequestError, match=str(context)) as caught:
        client.completions.create(model="acorn", prompt=[7] * context)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="acorn", input="x")


def test_an_upgrade_to_websocket_is_refused_quietly(served: Process) -> None:
    said = len(served.log)
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    for path in ("/v1/chat/completions", "/nowhere"):
        connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=60)
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as reply:
            assert (reply.status, reply.headers["Connection"]) == (400, "close")
            assert "no WebSocket here" in json.loads(reply.read())["error"]["message"]
    served.get("/health")
    assert served.log[said:] == []


def test_hanging_up_in_the_middle_of_a_body_is_no_bug(served: Process) -> None:
    said = len(served.log)
    host, port = served.url.removeprefix("http://").split(":")
    head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # the body is being read
        connection.sendall(b"{")
    time.sleep(0.2)  # a traceback would take its way through the log
    assert served.log[said:] == []


def test_leaving_a_stream_frees_its_slots(client: openai.OpenAI, served: Process) -> None:
    generated = served.metric("vllm:generation_tokens_total")
    stream = whole(client, stream=True, n=32, max_tokens=ENDLESS, extra_body=ON_AND_ON)
    next(stream)
    wait_until(lambda: served.metric("vllm:num_requests_running") == 32)
    stream.close()
    wait_until(lambda: served.metric("vllm:num_requests_running") == 0)
    assert served.metric("vllm:generation_tokens_total") < generated + 32 * ENDLESS


def test_64_streams_at_once_say_what_one_says(client: openai.OpenAI, served: Process) -> None:
    alone = collected(client)[0]

    async def all_at_once() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", timeout=300) as client:

            async def one() -> str:
                stream = await client.chat.completions.create(
                    model="acorn", messages=ASK, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return await asyncio.gather(*(one() for _ in range(64)))

    assert asyncio.run(all_at_once()) == [alone] * 64
    assert served.metric("onechip:compiles_after_warmup_total") == 0


def end_of(stream: Any) -> str:
    """Why a stream ended, or its error."""
    try:
        return str(list(stream)[-1].choices[0].finish_reason)
    except openai.APIError as error:
        return error.message


@pytest.mark.usefixtures("served")  # so that the programs are compiled
@pytest.mark.parametrize(("signals", "count"), [(1, 4), (2, 32)])
def test_ctrl_c_drains_and_a_second_one_stops(signals: int, count: int) -> None:
    end = "length" if signals == 1 else "The server stopped before the answer was complete."
    with Process() as process:
        wait_until(process.ready, 400)
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0) as client:
            asked = {"stream": True, "max_tokens": ENDLESS, "extra_body": ON_AND_ON}
            streams = [whole(client, **asked) for _ in range(count)]
            for stream in streams:
                next(stream)
            process.interrupt()
            wait_until(lambda: any(f"Finishing {count} running" in line for line in process.log))
            with pytest.raises(openai.InternalServerError, match="shutting down"):
                whole(client)
            if signals == 2:
                process.interrupt()
            with ThreadPoolExecutor(count) as pool:  # all at once: the server does not wait for long
                assert list(pool.map(end_of, streams)) == [end] * count
        assert process.wait() == 0
        assert process.log[-1] == "Stopped.\n"
        assert not any("Traceback" in line for line in process.log)
