"""What an engine can do, found by asking it: a target in, its features out.

Every optional field of a request is tried once on a tiny one; a field that the engine refuses or does not
obey is left out of all requests, and the manifest says which fields were sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from onechip.errors import EngineError
from onechip.ladder.client import fetch, fetch_json
from onechip.ladder.records import RequestRecord
from onechip.ladder.served import served_model
from onechip.ladder.stream import read_exchange
from onechip.ladder.target import Target
from onechip.ladder.wire import Exchange

PROBE_S = 300.0
"""For one probing request: the first one may make an engine compile."""
CHAT = "/v1/chat/completions"
LIMITS = ("max_tokens", "max_completion_tokens")
"""Fields that end an answer; some engines read only one of them, and silently."""
HOLDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "ignore_eos": lambda tokens: {"ignore_eos": True},
    "min_tokens": lambda tokens: {"min_tokens": tokens},
    "generation_config": lambda tokens: {
        "generation_config": json.dumps({"min_new_tokens": tokens, "max_new_tokens": tokens})
    },
}
"""Fields that keep an answer from ending before `tokens`: most engines', vLLM's other one, transformers'."""
HOLD_TOKENS = 24
LIMIT_TOKENS = 4
REPEAT_TOKENS = 12
CALL_TOKENS = 48
LONG = "Count from one to fifty in words."
WISH = "Order 8 plates of salad."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "place_order",
        "description": "Place an order of food.",
        "parameters": {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "description": "The number of plates."},
                "item": {"type": "string", "description": "The dish to order."},
            },
            "required": ["item", "count"],
        },
    },
}
"""In the words that acorn was trained on, which any model understands."""


class Features(msgspec.Struct, frozen=True):
    """What the engine does.

    Attributes:
        model: the id that it serves the model under.
        context: tokens of prompt and output together, None if it does not say.
        usage: sends usage at the end of a stream.
        counts: sends usage in every event (`continuous_usage_stats`).
        cached: its usage says how many tokens of a prompt came from a cache.
        completions, token_ids: has /v1/completions, and takes token ids there.
        limit: the field by which it can be told to stop, one of LIMITS; None if it obeys none.
        fixed: the field by which it can be told to go on to the limit, one of HOLDS; None if it obeys none.
        tokenize: has /tokenize.
        thinking_off: takes `chat_template_kwargs: {"enable_thinking": false}`.
        tools: takes `tools`.
        calls: answered a plain wish with a call of the one tool that it was given, as `tool_calls`.
        seed: the same seed gave the same text twice at temperature 1.
        greedy: temperature 0 gave the same text twice.
        logprobs: gives log-probabilities of its tokens where asked.
    """

    model: str
    context: int | None
    usage: bool
    counts: bool
    cached: bool
    completions: bool
    token_ids: bool
    limit: str | None
    fixed: str | None
    tokenize: bool
    thinking_off: bool
    tools: bool
    calls: bool
    seed: bool
    greedy: bool
    logprobs: bool

    @property
    def ignore_eos(self) -> bool:
        """Whether it can be held to an output length, by whatever field."""
        return self.fixed is not None

    def fields(self, output_tokens: int, *, fixed: bool) -> dict[str, Any]:
        """Body fields that every request has; `fixed` asks for exactly `output_tokens`."""
        fields: dict[str, Any] = {
            "model": self.model,
            self.limit or LIMITS[0]: output_tokens,
            "temperature": 0,
            "stream": True,
        }
        options = {name: True for name, has in _options(self.usage, self.counts) if has}
        if options:
            fields["stream_options"] = options
        if fixed and self.fixed is not None:
            fields |= HOLDS[self.fixed](output_tokens)
        return fields


def _options(usage: bool, counts: bool) -> tuple[tuple[str, bool], tuple[str, bool]]:
    return ("include_usage", usage), ("continuous_usage_stats", counts)


class _Tokens(msgspec.Struct):
    """An answer of /tokenize, in vLLM's or llama.cpp's form."""

    tokens: list[int]


class _Logprobs(msgspec.Struct):
    content: list[Any] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class Prober:
    """Tiny requests to one engine; `limit` is the field that ends its answers, where that is known."""

    def __init__(
        self, target: Target, model: str, timeout_s: float = PROBE_S, limit: str | None = None
    ) -> None:
        self.target = target
        self.model = model
        self.timeout_s = timeout_s
        self.limit = limit or LIMITS[0]
        self.options: dict[str, bool] = {}

    def body(self, fields: dict[str, Any], tokens: int) -> dict[str, Any]:
        return {"model": self.model, self.limit: tokens, "temperature": 0} | fields

    def ask(self, path: str, fields: dict[str, Any], tokens: int = 2) -> RequestRecord:
        body = self.body({"stream": True} | fields, tokens)
        if self.options:
            body["stream_options"] = self.options
        record = RequestRecord(0, "")
        try:
            response = fetch(self.target, path, body, self.timeout_s)
        except OSError as error:
            record.error = f"{error}."
            return record
        head = f"HTTP/1.1 {response.head.status} \r\ncontent-length: {len(response.body)}\r\n"
        kind = f"content-type: {response.head.headers.get('content-type', '')}\r\n\r\n"
        whole = Exchange(0, [(0, (head + kind).encode() + response.body)], 1)
        return read_exchange(whole, record)

    def chat(self, fields: dict[str, Any], tokens: int = 2, text: str = "Hello") -> RequestRecord:
        return self.ask(CHAT, _said(text) | fields, tokens)

    def takes(self, fields: dict[str, Any]) -> bool:
        return self.chat(fields).error is None

    def find_options(self) -> None:
        """Keeps the stream options that are taken."""
        for wish in ({"include_usage": True, "continuous_usage_stats": True}, {"include_usage": True}):
            self.options = wish
            if self.takes({}):
                return
        self.options = {}

    def find_limit(self) -> str | None:
        """Keeps the field that ends an answer, and names it; where no answer was longer, the usual one."""
        for name in LIMITS:
            self.limit = name
            record = self.chat({}, LIMIT_TOKENS, LONG)
            if record.error is None and _tokens(record) <= LIMIT_TOKENS:
                return name
        self.limit = LIMITS[0]
        return None

    def find_hold(self) -> str | None:
        """The field by which an answer goes on to its limit."""
        for name, hold in HOLDS.items():
            record = self.chat(hold(HOLD_TOKENS), HOLD_TOKENS)
            if record.error is None and _tokens(record) == HOLD_TOKENS:
                return name
        return None

    def repeats(self, fields: dict[str, Any]) -> bool:
        """Whether a request is taken and gives the same text twice."""
        first, second = (self.chat(fields, REPEAT_TOKENS, LONG) for _ in range(2))
        return first.error is None and second.error is None and first.text == second.text

    def calls(self) -> bool:
        """Whether a plain wish comes back as a call of the one tool that grants it."""
        record = self.chat({"tools": [TOOL]}, CALL_TOKENS, WISH)
        made = record.extra.get("tool_calls", [])
        return record.error is None and [call["name"] for call in made] == [TOOL["function"]["name"]]

    def logprobs(self) -> bool:
        wish = _said("Hello") | {"logprobs": True, "top_logprobs": 1, "stream": False}
        found = fetch_json(self.target, CHAT, self.body(wish, 2), _Answer, self.timeout_s)
        return found is not None and any(c.logprobs and c.logprobs.content for c in found.choices[:1])


def _said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _tokens(record: RequestRecord) -> int:
    return record.output_tokens or len(record.event_ns)


def probe(target: Target, wanted: str) -> Features:
    """Asks an engine what it can do.

    Raises:
        EngineError: it does not answer the plainest chat request, or stops to while it is asked.
    """
    model, context = served_model(target, wanted)
    prober = Prober(target, model)
    plain = prober.chat({})
    if plain.error is not None:
        raise EngineError(f"{target.url} does not answer a plain streamed chat request: {plain.error}")
    prober.find_options()
    limit = prober.find_limit()
    completions = prober.ask("/v1/completions", {"prompt": "Hello"})
    ids = prober.ask("/v1/completions", {"prompt": [5, 6, 7, 8]})
    counted = prober.chat({}, tokens=8)
    features = Features(
        model=model,
        context=context,
        usage=counted.output_tokens is not None,
        counts="continuous_usage_stats" in prober.options and counted.extra.get("tokens_from") == "usage",
        cached=counted.cached_tokens is not None,
        completions=completions.error is None,
        token_ids=ids.error is None and ids.prompt_tokens in (4, 5),
        limit=limit,
        fixed=prober.find_hold(),
        tokenize=tokenize(target, model, {"prompt": "Hello"}) is not None,
        thinking_off=prober.takes({"chat_template_kwargs": {"enable_thinking": False}}),
        tools=prober.takes({"tools": [TOOL]}),
        calls=prober.calls(),
        seed=prober.repeats({"seed": 7, "temperature": 1}),
        greedy=prober.repeats({}),
        logprobs=prober.logprobs(),
    )
    # An engine that died on the way would pass for one that can do little.
    error = refusal(target, features, PROBE_S)
    if error is not None:
        raise EngineError(f"{target.url} stopped answering while it was asked what it can do: {error}")
    return features


def refusal(target: Target, features: Features, timeout_s: float) -> str | None:
    """Why a plain streamed chat request of two tokens fails; None if it is answered."""
    return Prober(target, features.model, timeout_s, features.limit).chat({}).error


def tokenize(target: Target, model: str, fields: dict[str, Any]) -> list[int] | None:
    """Ids from the engine's /tokenize, in vLLM's or llama.cpp's form; None if it has none.

    Args:
        fields: of a request: `prompt` (a text) or `messages`, which go through the engine's template.
    """
    forms = [{"model": model} | fields]
    if "prompt" in fields:
        forms.append({"content": fields["prompt"], "add_special": True})
    for body in forms:
        found = fetch_json(target, "/tokenize", body, _Tokens)
        if found is not None:
            return found.tokens
    return None
