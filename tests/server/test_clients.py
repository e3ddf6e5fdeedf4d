"""The clients that people have, each in a streamed conversation of several turns with tools, with acorn.

What acorn calls and says is known, so arguments, results and texts are compared, not only their form.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import anthropic
import ollama
import openai
import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.server.process import ABOUT, NAME, ORDERS, PARAMETERS, PROBLEM, TOOLS, Process

GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def openai_client(served: Process) -> Any:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic_client(served: Process) -> Any:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def ollama_client(served: Process) -> Any:
    with ollama.Client(served.url) as client:
        yield client


def deltas(events: list[Any], type: str) -> list[str]:
    """What the events of this type add, piece by piece."""
    return [event.delta for event in events if event.type == type]


def test_a_text_comes_in_pieces(
    openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic, ollama_client: ollama.Client
) -> None:
    """And the same text in every protocol, streamed or whole.

    Where the machine is busy, all windows of so short an answer may be handed over at once: then it is asked
    for again.
    """
    ask: Any = {"model": "acorn", "messages": [{"role": "user", "content": PROBLEM}]}
    whole = openai_client.chat.completions.create(**ask, temperature=0).choices[0].message.content

    def chat() -> list[str | None]:
        chunks = openai_client.chat.completions.create(**ask, temperature=0, stream=True)
        return [chunk.choices[0].delta.content for chunk in chunks]

    def responses() -> list[str | None]:
        stream = openai_client.responses.create(model="acorn", input=PROBLEM, temperature=0, stream=True)
        return [*deltas(list(stream), "response.output_text.delta")]

    def messages() -> list[str | None]:
        with anthropic_client.messages.stream(**ask, max_tokens=300, extra_body=GREEDY) as stream:
            return [*stream.text_stream]

    def ollama_chat() -> list[str | None]:
        return [part.message.content for part in ollama_client.chat(**ask, stream=True, options=GREEDY)]

    for read in (chat, responses, messages, ollama_chat):
        for _ in range(20):
            pieces = read()
            assert "".join(piece or "" for piece in pieces) == whole
            if sum(map(bool, pieces)) > 1:
                break
        assert sum(map(bool, pieces)) > 1


def test_openai_chat(openai_client: openai.OpenAI) -> None:
    messages: list[Any] = []

    def turn() -> Any:
        with openai_client.chat.completions.stream(
            model="acorn", messages=messages, tools=TOOLS, temperature=0
        ) as stream:
            events = list(stream)
            message = stream.get_final_completion().choices[0].message
        messages.append(message)
        given = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
        assert {event.name for event in given} <= {NAME}  # known before the arguments are
        arguments = "".join(call.function.arguments for call in message.tool_calls or [])
        assert "".join(event.arguments_delta for event in given) == arguments
        assert "".join(deltas(events, "content.delta")) == (message.content or "")
        return message

    for question, arguments, result in ORDERS:
        messages.append({"role": "user", "content": question})
        (call,) = turn().tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == (NAME, arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert turn().content == f"The result is {result}."


def test_openai_responses(openai_client: openai.OpenAI) -> None:
    tools: list[Any] = [
        {"type": "function", "name": NAME, "description": ABOUT, "parameters": PARAMETERS, "strict": False}
    ]
    items: list[Any] = []

    def turn() -> Any:
        with openai_client.responses.stream(
            model="acorn", input=items, tools=tools, temperature=0, store=False
        ) as stream:
            events = list(stream)
            response = stream.get_final_response()
        names = [event.type for event in events]
        assert names[:2] == ["response.created", "response.in_progress"]
        assert names[-1] == "response.completed"
        assert "".join(deltas(events, "response.output_text.delta")) == response.output_text
        arguments = [item.arguments for item in response.output if item.type == "function_call"]
        assert "".join(deltas(events, "response.function_call_arguments.delta")) == "".join(arguments)
        items.extend(response.output)
        return response

    for question, arguments, result in ORDERS:
        items.append({"role": "user", "content": question})
        (call,) = turn().output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", NAME, arguments)
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
        response = turn()
        assert response.output_text == f"The result is {result}."
        usage = response.usage
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    counted = openai_client.responses.input_tokens.count(model="acorn", input=items[:-1], tools=tools)
    assert counted.input_tokens == usage.input_tokens


def test_openai_responses_has_no_memory(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": "acorn", "input": PROBLEM}
    whole = openai_client.responses.create(**ask, temperature=0, instructions="")
    assert (whole.store, whole.status) == (False, "completed")
    with pytest.raises(openai.BadRequestError, match="send the conversation so far in input"):
        openai_client.responses.create(**ask, previous_response_id=whole.id)
    with pytest.raises(openai.BadRequestError, match="nothing is stored here") as caught:
        openai_client.responses.create(**ask, store=True)
    assert (caught.value.param, caught.value.code) == ("store", "unsupported_parameter")
    with pytest.raises(openai.NotFoundError, match="No response is stored here"):
        openai_client.responses.retrieve(whole.id)
    cut = openai_client.responses.create(**ask, temperature=0, max_output_tokens=5)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert cut.usage.output_tokens == 5


def test_anthropic(anthropic_client: anthropic.Anthropic) -> None:
    tools: Any = [{"name": NAME, "description": ABOUT, "input_schema": PARAMETERS}]
    messages: list[Any] = []

    def turn() -> Any:
        with anthropic_client.messages.stream(
            model="acorn", max_tokens=200, messages=messages, tools=tools, extra_body=GREEDY
        ) as stream:
            events = list(stream)
            message = stream.get_final_message()
        texts = [event.text for event in events if event.type == "text"]
        assert "".join(texts) == "".join(block.text for block in message.content if block.type == "text")
        given = "".join(event.partial_json for event in events if event.type == "input_json")
        inputs = [block.input for block in message.content if block.type == "tool_use"]
        assert ([json.loads(given)] if given else []) == inputs
        messages.append(message.to_param())
        return message

    for question, arguments, result in ORDERS:
        messages.append({"role": "user", "content": question})
        message = turn()
        (call,) = message.content
        assert (call.type, call.name, call.input) == ("tool_use", NAME, arguments)
        assert message.stop_reason == "tool_use"
        given = {"type": "tool_result", "tool_use_id": call.id, "content": result}
        messages.append({"role": "user", "content": [given]})
        message = turn()
        assert [block.text for block in message.content] == [f"The result is {result}."]
        assert message.stop_reason == "end_turn"
    counted = anthropic_client.messages.count_tokens(model="acorn", messages=messages[:-1], tools=tools)
    usage = message.usage
    assert usage.cache_read_input_tokens > 0, "the conversation goes on"
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_anthropics_own_tool_loop(anthropic_client: anthropic.Anthropic) -> None:
    question, arguments, result = ORDERS[0]
    orders: list[Any] = []

    @anthropic.beta_tool(name=NAME, description=ABOUT, input_schema=PARAMETERS)
    def place_order(count: int, item: str) -> str:
        orders.append({"count": count, "item": item})
        return result

    runner = anthropic_client.beta.messages.tool_runner(
        model="acorn",
        max_tokens=200,
        messages=[{"role": "user", "content": question}],
        tools=[place_order],
        stream=True,
        extra_body=GREEDY,
    )
    ends = [stream.get_final_message() for stream in runner]
    assert orders == [arguments]
    assert [end.stop_reason for end in ends] == ["tool_use", "end_turn"]
    assert ends[-1].content[0].text == f"The result is {result}."


def test_anthropic_ends_and_errors(anthropic_client: anthropic.Anthropic) -> None:
    ask: Any = {"model": "acorn", "messages": [{"role": "user", "content": PROBLEM}]}
    cut = anthropic_client.messages.create(**ask, max_tokens=5, extra_body=GREEDY)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 5)
    stopped = anthropic_client.messages.create(
        **ask, max_tokens=200, stop_sequences=["never", "\n####"], extra_body=GREEDY
    )
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "\n####")
    with pytest.raises(anthropic.BadRequestError, match="requires a call, but there are no tools") as caught:
        anthropic_client.messages.create(**ask, max_tokens=5, tool_choice={"type": "any"})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError, match="served is 'acorn'") as missing:
        anthropic_client.messages.create(**{**ask, "model": "claude"}, max_tokens=5)
    assert missing.value.body["error"]["type"] == "not_found_error"


def test_ollama_chat(ollama_client: ollama.Client) -> None:
    messages: list[Any] = []

    def turn() -> tuple[str, list[Any]]:
        text, calls = "", []
        for part in ollama_client.chat("acorn", messages, tools=TOOLS, stream=True, options=GREEDY):
            text += part.message.content or ""
            calls += part.message.tool_calls or []
        assert (part.done, part.done_reason) == (True, "stop")
        parts = part.prompt_eval_duration + part.eval_duration
        assert abs(part.total_duration - parts) <= 2 < parts  # each is rounded to a nanosecond
        assert part.prompt_eval_count > 0
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        return text, calls

    for question, arguments, result in ORDERS:
        messages.append({"role": "user", "content": question})
        text, (call,) = turn()
        assert (text, call.function.name, call.function.arguments) == ("", NAME, arguments)
        messages.append({"role": "tool", "tool_name": NAME, "content": result})
        assert turn() == (f"The result is {result}.", [])


def test_ollamas_other_questions(ollama_client: ollama.Client, openai_client: openai.OpenAI) -> None:
    (listed,) = ollama_client.list().models
    assert (listed.model, listed.details.format) == ("acorn", "safetensors")
    assert listed.size > 2_000_000
    shown = ollama_client.show("acorn:latest")
    assert set(shown.capabilities) == {"completion", "tools", "thinking"}
    context = openai_client.models.retrieve("acorn").model_extra["max_model_len"]
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == context
    chat = ollama_client.chat("acorn", [{"role": "user", "content": PROBLEM}], options=GREEDY)
    generated = ollama_client.generate("acorn", PROBLEM, options=GREEDY)
    assert generated.response == chat.message.content
    assert "#### 45" in generated.response
    raw = f"<|turn>user\n{PROBLEM}<turn|>\n<|turn>model\n"
    again = ollama_client.generate("acorn", raw, raw=True, options=GREEDY)
    assert (again.response, again.prompt_eval_count) == (generated.response, generated.prompt_eval_count)
    cut = ollama_client.generate("acorn", PROBLEM, options=GREEDY | {"num_predict": 3})
    assert (cut.done_reason, cut.eval_count) == ("length", 3)
    assert ollama_client.generate("acorn").done_reason == "load"
    with pytest.raises(ollama.ResponseError, match="the context is 10 tokens") as caught:
        ollama_client.generate("acorn", PROBLEM, options={"num_ctx": 10})
    assert caught.value.status_code == 400
    assert ollama_client.generate("acorn", PROBLEM, options={"num_ctx": 10_000_000, "num_predict": 1}).done
    assert [loaded.model for loaded in ollama_client.ps().models] == ["acorn"]
    with pytest.raises(ollama.ResponseError, match="no embeddings here") as refused:
        ollama_client.embed("acorn", "x")
    assert refused.value.status_code == 404


def test_an_agent(served: Process) -> None:
    """pydantic-ai: it calls the functions itself, and hands their results back, until there is an answer.

    Its tools are strict.
    """
    results = {str(arguments): result for _, arguments, result in ORDERS}

    def place_order(count: int, item: str) -> str:
        """Place an order of food.

        Args:
            count: The number of plates.
            item: The dish to order.
        """
        return results[str({"count": count, "item": item})]

    async def converse() -> list[str]:
        texts, history = [], None
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIChatModel("acorn", provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, tools=[place_order], model_settings={"temperature": 0.0})
            for question, _, _ in ORDERS:
                async with agent.run_stream(question, message_history=history) as run:
                    texts.append("".join([piece async for piece in run.stream_text(delta=True)]))
                    history = run.all_messages()
        return texts

    assert asyncio.run(converse()) == [f"The result is {result}." for _, _, result in ORDERS]


class Order(BaseModel):
    """What the clients below make schemas of."""

    item: Literal["tea", "rice", "soup of the day"]
    count: int = Field(ge=1, le=20)
    hot: bool


class Greeting(BaseModel):
    """anthropic's client takes bounds out of a schema."""

    to: Literal["Olga", "Tom"]
    loud: bool


SCHEMA = Order.model_json_schema() | {"additionalProperties": False}
MESSAGES: Any = [{"role": "user", "content": PROBLEM}]
"""acorn answers it with text, unless it is made to answer otherwise."""


def test_openai_parses_what_has_a_form(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.parse(model="acorn", messages=MESSAGES, response_format=Order)
    assert isinstance(whole.choices[0].message.parsed, Order)
    with openai_client.chat.completions.stream(
        model="acorn", messages=MESSAGES, response_format=Order, temperature=0
    ) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Order)
    response = openai_client.responses.parse(model="acorn", input=MESSAGES, text_format=Order)
    assert isinstance(response.output_parsed, Order)


def test_openai_requires_a_call(openai_client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Order)
    named: Any = {"type": "function", "function": {"name": "Order"}}
    for choice in ("required", named):
        parsed = openai_client.chat.completions.parse(
            model="acorn", messages=MESSAGES, tools=[tool], tool_choice=choice, parallel_tool_calls=False
        )
        [call] = parsed.choices[0].message.tool_calls or ()
        assert isinstance(call.function.parsed_arguments, Order)
    flat: Any = {"type": "function", "name": "Order", "parameters": SCHEMA, "strict": True}
    response = openai_client.responses.create(
        model="acorn", input=MESSAGES, tools=[flat], tool_choice={"type": "function", "name": "Order"}
    )
    [item] = response.output
    assert item.type == "function_call"
    Order.model_validate_json(item.arguments)


def test_anthropic_requires_a_call_or_a_form(anthropic_client: anthropic.Anthropic) -> None:
    tools: Any = [{"name": "order", "input_schema": SCHEMA, "strict": True}]
    choices: Any = [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "order"}]
    ask: Any = {"model": "acorn", "max_tokens": 400, "messages": MESSAGES}
    for choice in choices:
        message = anthropic_client.messages.create(**ask, tools=tools, tool_choice=choice)
        [block] = message.content
        assert (block.type, message.stop_reason) == ("tool_use", "tool_use")
        Order.model_validate(block.input)
    parsed = anthropic_client.messages.parse(**ask, output_format=Greeting)
    assert isinstance(parsed.parsed_output, Greeting)


def test_ollama_has_formats(ollama_client: ollama.Client) -> None:
    reply = ollama_client.chat("acorn", MESSAGES, format=SCHEMA)
    Order.model_validate_json(reply.message.content or "")
    generated = ollama_client.generate("acorn", PROBLEM, format=SCHEMA)
    Order.model_validate_json(generated.response)


@pytest.mark.parametrize("output", [Order, NativeOutput(Order)], ids=["by a call", "by a form"])
def test_an_agent_with_a_type_of_answer(served: Process, output: Any) -> None:
    async def answer() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIChatModel("acorn", provider=OpenAIProvider(openai_client=client))
            return (await Agent(model, output_type=output, model_settings=GREEDY).run(PROBLEM)).output

    assert isinstance(asyncio.run(answer()), Order)
