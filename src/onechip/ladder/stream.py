"""One exchange with an OpenAI-compatible engine -> one RequestRecord: text, stamps, tokens, usage, error.

Engines differ in what they send; what counts as content, and how tokens are credited, is decided here
and belongs to TIMING_VERSION.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onechip.ladder.records import RequestRecord
from onechip.ladder.wire import (
    Exchange,
    NoHeadError,
    Response,
    ServerEvent,
    WireError,
    read_response,
    server_events,
)

JSON = dict[str, Any]
CountTokens = Callable[[str], int]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    """A fragment of a tool call."""

    index: int | None = None
    function: _Function | None = None


class _Said(msgspec.Struct):
    """What a delta or a message may hold; a completion's choice has it itself."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    role: Any = msgspec.UNSET


class _Choice(_Said):
    """The parts of a choice that are read; others may be there."""

    text: str | None = None
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: Any = None
    token_ids: Any = None


_NOTHING = _Said()


@dataclass(slots=True)
class _Content:
    """One event that carries generated content.

    Attributes:
        tokens: how many tokens it carried, where the event itself says so.
        total: output tokens so far by the event's own usage, None without one.
    """

    ns: int
    size: int
    tokens: int | None
    total: int | None


@dataclass(slots=True)
class Stream:
    """What the events of one response said, before tokens are credited."""

    content: list[_Content] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: JSON = field(default_factory=dict)
    finish: str | None = None
    error: str | None = None


def read_exchange(
    exchange: Exchange, record: RequestRecord, count: CountTokens | None = None
) -> RequestRecord:
    """Fills a record from the raw bytes of its exchange.

    Args:
        exchange: as the client left it.
        record: index, prompt hash and what was asked for; the rest is filled in here.
        count: our own tokenizer's count of a text, where the tokenizer is known.
    """
    record.sent_ns, record.end_ns = exchange.sent_ns, exchange.end_ns
    stream = Stream()
    try:
        response = read_response(exchange.arrivals, closed=exchange.error is None)
    except NoHeadError as error:
        record.error = exchange.error or f"{error}."
        return record
    except WireError as error:
        record.error = f"{error}."
        return record
    if response.head.status != 200:
        record.error = exchange.error or f"HTTP {response.head.status}: {_message(response.body)}"
        return record
    for event in _events(response, exchange.end_ns):
        _read_event(event, stream)
    _fill(record, stream, count)
    record.error = exchange.error or stream.error or _early_end(stream, response)
    return record


def _events(response: Response, end_ns: int) -> list[ServerEvent]:
    """Events of a stream; one piece of JSON gives one event, at the time of its last byte."""
    if "json" in response.head.headers.get("content-type", ""):
        return [ServerEvent(end_ns, "", response.body)]
    return server_events(response)


def _early_end(stream: Stream, response: Response) -> str | None:
    if stream.finish is not None:
        return None
    how = "the stream ended" if response.complete else "the connection closed inside the stream,"
    return f"{how} early: {len(stream.content)} content events and no finish_reason."


def _message(body: bytes) -> str:
    """The sentence inside an error body, or the start of the body."""
    text = body.decode("utf-8", "replace").strip()
    try:
        payload = json.loads(text)
    except ValueError:
        return text[:300] or "no message"
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        return str(error.get("message") or error.get("detail") or error)[:300]
    return str(error)[:300]


def _read_event(event: ServerEvent, stream: Stream) -> None:
    """One server-sent event into the stream; after an error nothing more is believed."""
    if stream.error is not None or event.data.strip() == b"[DONE]":
        return
    try:
        # surrogateescape keeps the halves of a character that was split across two events.
        payload = json.loads(event.data.decode("utf-8", "surrogateescape"))
    except ValueError:
        stream.error = f"an event is not JSON: {event.data[:80]!r}."
        return
    if not isinstance(payload, dict):
        return
    if event.name == "error" or payload.get("error"):
        stream.error = f"the engine sent an error inside the stream: {_message(event.data)}"
        return
    usage = payload.get("usage")
    if isinstance(usage, dict):
        stream.usage = usage
    try:
        choices = msgspec.convert(payload.get("choices") or [], list[_Choice])
    except msgspec.ValidationError as error:
        stream.error = f"an event has another shape than OpenAI's: its choices: {error}."
        return
    if choices:
        _read_choice(event.ns, choices[0], usage if isinstance(usage, dict) else None, stream)


def _read_choice(ns: int, choice: _Choice, usage: JSON | None, stream: Stream) -> None:
    """A choice of one event: its text, reasoning and tool calls, and whether it is content at all.

    Content is text, reasoning, a tool call, or a token whose text is empty; the latter shows as an empty
    string without a role or a finish_reason, or as a rise of the token count where every event has one.
    """
    said: _Said = next(
        (part for part in (choice.delta, choice.message) if part not in (None, _NOTHING)), choice
    )
    text = said.content if said is not choice else choice.text
    reasoning = said.reasoning_content or said.reasoning or ""
    calls = said.tool_calls or []
    finish = choice.finish_reason
    stream.text.append(text or "")
    stream.reasoning.append(reasoning)
    size = len(text or "") + len(reasoning) + sum(_read_call(call, stream) for call in calls)
    empty_token = text == "" and said.role is msgspec.UNSET and finish is None
    tokens = len(choice.token_ids) if isinstance(choice.token_ids, list) else None
    total = _positive(usage, "completion_tokens")
    before = stream.content[-1].total if stream.content else 0
    # A count in the event with finish_reason alone is the final usage sent along with choices.
    risen = (
        total is not None and before is not None and total > before and bool(stream.content or finish is None)
    )
    if size or calls or empty_token or tokens or risen:
        stream.content.append(_Content(ns, size, tokens, total))
    if finish is not None:
        stream.finish = str(finish)


def _read_call(call: _Call, stream: Stream) -> int:
    """A fragment of a tool call; returns how many characters it brought."""
    function = call.function or _Function()
    index = len(stream.tool_calls) if call.index is None else call.index
    so_far = stream.tool_calls.setdefault(index, {"name": "", "arguments": ""})
    name = function.name or ""
    arguments = "" if function.arguments is None else function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    so_far["name"] += name
    so_far["arguments"] += arguments
    return len(name) + len(arguments)


def _positive(usage: JSON | None, key: str) -> int | None:
    """A count of the usage; some engines send zero for what they do not know, so zero is None."""
    value = (usage or {}).get(key)
    return int(value) if isinstance(value, int) and value > 0 else None


def _fill(record: RequestRecord, stream: Stream, count: CountTokens | None) -> None:
    record.text = mend("".join(stream.text))
    reasoning = mend("".join(stream.reasoning))
    if reasoning:
        record.extra["reasoning"] = reasoning
    if stream.tool_calls:
        record.extra["tool_calls"] = [stream.tool_calls[index] for index in sorted(stream.tool_calls)]
    record.finish = stream.finish
    record.prompt_tokens = _positive(stream.usage, "prompt_tokens")
    record.output_tokens = _positive(stream.usage, "completion_tokens")
    details = stream.usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    record.cached_tokens = int(cached) if isinstance(cached, int) else None
    if count is not None and not stream.tool_calls:
        record.counted_tokens = count(reasoning + record.text)
    record.event_ns = [content.ns for content in stream.content]
    record.event_tokens, record.extra["tokens_from"] = _credit(stream.content, record)
    mismatch = _mismatch(record)
    if mismatch:
        record.extra["count_mismatch"] = mismatch


def _credit(content: list[_Content], record: RequestRecord) -> tuple[list[int], str]:
    """How many tokens each content event carried, and how that is known (see RequestRecord.extra)."""
    totals = [c.total for c in content if c.total is not None]
    # A single event with usage is the final usage sent along with choices, not a count in every event.
    if len(totals) == len(content) and (len(content) > 1 or record.output_tokens == sum(totals)):
        return [now - before for before, now in zip([0, *totals], totals, strict=False)], "usage"
    if content and all(c.tokens is not None for c in content):
        return [c.tokens or 0 for c in content], "token ids"
    known = record.output_tokens or record.counted_tokens
    # The stop token is counted but has no event of its own in most engines.
    if known is None or known == len(content) or (record.finish == "stop" and known == len(content) + 1):
        return [1] * len(content), "one each"
    return spread(known, [c.size for c in content]), "text"


def spread(tokens: int, sizes: list[int]) -> list[int]:
    """Shares `tokens` out over events in proportion to their sizes (an empty one is 1), exactly in sum."""
    weights = [max(1, size) for size in sizes]
    total, seen, given = sum(weights), 0, 0
    shares: list[int] = []
    for weight in weights:
        seen += weight
        share = round(tokens * seen / total) - given
        shares.append(share)
        given += share
    return shares


def _mismatch(record: RequestRecord) -> str | None:
    """One sentence if the engine's counts contradict each other."""
    if record.output_tokens is None:
        return None
    said = sum(record.event_tokens)
    if (
        record.extra.get("tokens_from") in ("usage", "token ids")
        and said > 0
        and said != record.output_tokens
    ):
        hidden_stop = record.finish == "stop" and said == record.output_tokens - 1
        if not hidden_stop:
            return f"its events carried {said} tokens, its final usage says {record.output_tokens}."
    return None


def mend(text: str) -> str:
    """Joins the halves of characters that were split across events, as raw bytes or as surrogates.

    Halves without a partner become U+FFFD.
    """
    if text.isascii():
        return text
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    raw = b"".join(
        c.encode("utf-8", "surrogateescape")
        if not "\ud800" <= c <= "\udfff" or "\udc80" <= c <= "\udcff"
        else b"\xff"
        for c in paired
    )
    return raw.decode("utf-8", "replace")
