"""What an engine can do, found by asking it: a target in, its features and a recipe for exact prompts out.

Every optional field of a request is tried once on a tiny one; a field that the engine refuses or does not
obey is left out of all requests, and the manifest says which fields were sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from onechip.errors import EngineError, LadderError
from onechip.ladder import prompts
from onechip.ladder.checkpoint import TokenCounter
from onechip.ladder.client import fetch, fetch_json
from onechip.ladder.records import RequestRecord
from onechip.ladder.stream import read_exchange
from onechip.ladder.target import Target
from onechip.ladder.wire import Exchange

PROBE_S = 300.0
"""For one probing request: the first one may make an engine compile."""
IGNORE_EOS_TOKENS = 24
USAGE_CANDIDATES = 48
"""Words tried where each count costs a request."""
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Tells the time.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Features(msgspec.Struct, frozen=True):
    """What the engine does.

    Attributes:
        model: the id that it serves the model under.
        context: tokens of prompt and output together, None if it does not say.
        usage: sends usage at the end of a stream.
        counts: sends usage in every event (`continuous_usage_stats`).
        completions, token_ids: has /v1/completions, and takes token ids there.
        ignore_eos: goes on to max_tokens when told to.
        tokenize: has /tokenize.
        thinking_off: takes `chat_template_kwargs: {"enable_thinking": false}`.
        tools: takes `tools`.
    """

    model: str
    context: int | None
    usage: bool
    counts: bool
    completions: bool
    token_ids: bool
    ignore_eos: bool
    tokenize: bool
    thinking_off: bool
    tools: bool

    def fields(self, output_tokens: int, *, fixed: bool) -> dict[str, Any]:
        """Body fields that every request has; `fixed` asks for exactly `output_tokens`."""
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
        }
        options = {name: True for name, has in _options(self.usage, self.counts) if has}
        if options:
            fields["stream_options"] = options
        if fixed and self.ignore_eos:
            fields["ignore_eos"] = True
        return fields


def _options(usage: bool, counts: bool) -> tuple[tuple[str, bool], tuple[str, bool]]:
    return ("include_usage", usage), ("continuous_usage_stats", counts)


class _Prober:
    """Tiny requests to one engine."""

    def __init__(self, target: Target, model: str) -> None:
        self.target = target
        self.model = model
        self.options: dict[str, bool] = {}

    def ask(self, path: str, fields: dict[str, Any], tokens: int = 2) -> RequestRecord:
        body: dict[str, Any] = {"model": self.model, "max_tokens": tokens, "temperature": 0, "stream": True}
        if self.options:
            body["stream_options"] = self.options
        record = RequestRecord(0, "")
        try:
            response = fetch(self.target, path, body | fields, PROBE_S)
        except OSError as error:
            record.error = f"{error}."
            return record
        head = f"HTTP/1.1 {response.head.status} \r\ncontent-length: {len(response.body)}\r\n"
        kind = f"content-type: {response.head.headers.get('content-type', '')}\r\n\r\n"
        whole = Exchange(0, [(0, (head + kind).encode() + response.body)], 1)
        return read_exchange(whole, record)

    def chat(self, fields: dict[str, Any], tokens: int = 2, text: str = "Hello") -> RequestRecord:
        messages = [{"role": "user", "content": text}]
        return self.ask("/v1/chat/completions", {"messages": messages} | fields, tokens)

    def takes(self, fields: dict[str, Any]) -> bool:
        return self.chat(fields).error is None

    def find_options(self) -> None:
        """Keeps the stream options that are taken."""
        for wish in ({"include_usage": True, "continuous_usage_stats": True}, {"include_usage": True}):
            self.options = wish
            if self.takes({}):
                return
        self.options = {}


def served_model(target: Target, wanted: str) -> tuple[str, int | None]:
    """The model's id and its context from /v1/models: the one called `wanted`, else the first.

    Raises:
        EngineError: the engine lists no model.
    """
    listed = (fetch_json(target, "/v1/models") or {}).get("data") or []
    if not listed:
        raise EngineError(f"{target.url}/v1/models lists no model: is an OpenAI-compatible engine there?")
    entry = next((model for model in listed if model.get("id") == wanted), listed[0])
    meta = entry.get("meta") or {}
    context = entry.get("max_model_len") or entry.get("context_length") or meta.get("n_ctx")
    return str(entry["id"]), int(context) if context else None


def probe(target: Target, wanted: str) -> Features:
    """Asks an engine what it can do.

    Raises:
        EngineError: it does not answer the plainest chat request.
    """
    model, context = served_model(target, wanted)
    prober = _Prober(target, model)
    plain = prober.chat({})
    if plain.error is not None:
        raise EngineError(f"{target.url} does not answer a plain streamed chat request: {plain.error}")
    prober.find_options()
    completions = prober.ask("/v1/completions", {"prompt": "Hello"})
    ids = prober.ask("/v1/completions", {"prompt": [5, 6, 7, 8]})
    counted = prober.chat({}, tokens=8)
    longer = prober.chat({"ignore_eos": True}, IGNORE_EOS_TOKENS)
    obeys = longer.error is None and (longer.output_tokens or len(longer.event_ns)) == IGNORE_EOS_TOKENS
    return Features(
        model=model,
        context=context,
        usage=counted.output_tokens is not None,
        counts="continuous_usage_stats" in prober.options and counted.extra.get("tokens_from") == "usage",
        completions=completions.error is None,
        token_ids=ids.error is None and ids.prompt_tokens in (4, 5),
        ignore_eos=obeys,
        tokenize=_tokenize(target, model, "Hello") is not None,
        thinking_off=prober.takes({"chat_template_kwargs": {"enable_thinking": False}}),
        tools=prober.takes({"tools": [TOOL]}),
    )


def _tokenize(target: Target, model: str, text: str) -> list[int] | None:
    """Ids from the engine's /tokenize, in vLLM's or llama.cpp's form."""
    for body in ({"model": model, "prompt": text}, {"content": text, "add_special": True}):
        found = fetch_json(target, "/tokenize", body)
        if isinstance(found, dict) and isinstance(found.get("tokens"), list):
            return [int(token) for token in found["tokens"]]
    return None


def find_recipe(target: Target, features: Features, counter: TokenCounter | None) -> prompts.Recipe:
    """How to make prompts of exact length for this engine: token ids where it takes them, else text, else
    chat.

    Raises:
        LadderError: no way of counting tokens was found.
    """
    encode = _encoder(target, features, counter)
    if features.token_ids and encode is not None:
        counted = prompts.calibrate("ids", lambda text: len(encode(text)))
        return prompts.with_ids(counted, encode)
    if not features.usage:
        raise LadderError(
            f"{features.model} at {target.url} reports no usage and takes no token ids, so the length of a"
            " prompt cannot be known. Leave the sweep out with --jobs start,one,acc."
        )
    way: prompts.Way = "text" if features.completions else "chat"
    return prompts.calibrate(
        way, _usage_counter(target, features, way), prompts.CANDIDATES[:USAGE_CANDIDATES]
    )


def _encoder(
    target: Target, features: Features, counter: TokenCounter | None
) -> Callable[[str], list[int]] | None:
    if counter is not None:
        return counter.encode
    if features.tokenize:
        return lambda text: _tokenize(target, features.model, text) or []
    return None


def _usage_counter(target: Target, features: Features, way: prompts.Way) -> Callable[[str], int]:
    """Counts by sending short texts with one output token; no measured prompt gets into a cache."""
    prober = _Prober(target, features.model)
    prober.options = {"include_usage": True}

    def count(text: str) -> int:
        if way == "chat":
            record = prober.chat({}, 1, text)
        else:
            record = prober.ask("/v1/completions", {"prompt": text}, 1)
        if record.prompt_tokens is None:
            raise LadderError(f"{target.url} did not say how many tokens {text!r} has: {record.error}")
        return record.prompt_tokens

    return count
