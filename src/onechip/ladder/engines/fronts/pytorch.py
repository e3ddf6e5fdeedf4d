"""A plain PyTorch engine: our own decode loop around a transformers model, behind an OpenAI-like server.

It is a baseline, not a product: what a user would write in an afternoon. Eager PyTorch, a padded cache with
a row for each request, one step at a time for all rows, greedy only. Nothing of onechip is imported: the
ladder runs this file with the Python of the engine's own environment (torch, transformers, uvicorn).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import threading
import traceback
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers.decoders import DecodeStream
from transformers import AutoModelForCausalLM, AutoTokenizer

TAKEN = {"model", "prompt", "messages", "max_tokens", "max_completion_tokens", "temperature"}
TAKEN |= {"stream", "stream_options", "ignore_eos", "chat_template_kwargs"}
"""Fields of a body; all others are refused by name."""
DEFAULT_TOKENS = 256


class Refused(Exception):
    """A request that is answered with 400."""


@dataclass(slots=True)
class Generation:
    """One request from its arrival to its last token; `pieces` gets (text, finish) for each token."""

    prompt: list[int]
    limit: int
    ignore_eos: bool
    pieces: asyncio.Queue[tuple[str, str | None]]
    decoder: DecodeStream
    tokens: list[int] = field(default_factory=list)
    cancelled: bool = False

    @property
    def position(self) -> int:
        """Of the newest token, whose keys and values are not in the cache yet."""
        return len(self.prompt) + len(self.tokens) - 1


class RowCache:
    """Keys and values of all requests, in place of transformers' Cache.

    `aim` says which rows and positions the next forward pass writes; `update` is called by each layer.
    """

    is_compileable = False

    def __init__(self, rows: int, context: int) -> None:
        self._shape = (rows, context)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def aim(self, row: int, positions: torch.Tensor, span: int) -> None:
        """positions: [rows from `row` on, tokens] int64; span: how many positions are read."""
        self._row, self._positions, self._span = row, positions, span

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **_: Any) -> tuple[Any, Any]:
        """keys, values: [rows, heads, tokens, width]; returns the same rows up to the span."""
        if layer not in self._layers:
            rows, context = self._shape
            shape = (rows, keys.shape[1], context, keys.shape[3])
            # Zeros: what is masked is multiplied by 0, and 0 times a stray NaN would be NaN.
            self._layers[layer] = (keys.new_zeros(shape), values.new_zeros(shape))
        count = keys.shape[0]
        row = torch.arange(self._row, self._row + count, device=keys.device)[:, None]
        for store, new in zip(self._layers[layer], (keys, values), strict=True):
            store[row, :, self._positions] = new.transpose(1, 2)
        found = self._layers[layer]
        rows_read = slice(self._row, self._row + count)
        return found[0][rows_read, :, : self._span], found[1][rows_read, :, : self._span]

    def move(self, source: int, target: int, length: int) -> None:
        for layer in self._layers.values():
            for store in layer:
                store[target, :, :length] = store[source, :, :length]

    def get_seq_length(self, layer: int = 0) -> int:
        return 0


class Loop:
    """Requests in through `submit`, tokens out into their queues. Rows 0 to n-1 are the running ones."""

    def __init__(self, model: Any, rows: int, context: int) -> None:
        self.model, self.rows, self.context = model, rows, context
        self.device = model.device
        self.words = int(model.get_input_embeddings().num_embeddings)
        config = model.config.get_text_config()
        sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        self.window = int(config.sliding_window) if sliding else None
        ends = model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends])
        self.cache = RowCache(rows, context)
        self.running: list[Generation] = []
        self.inbox: queue.Queue[Generation] = queue.Queue()
        self.events: asyncio.AbstractEventLoop | None = None

    def submit(self, generation: Generation) -> None:
        self.events = asyncio.get_running_loop()
        self.inbox.put(generation)

    def run(self, tokenizer: Any) -> None:
        """Until the process ends: lets requests in, then one step for all that run."""
        while True:
            while len(self.running) < self.rows and (not self.running or not self.inbox.empty()):
                self.running.append(self.inbox.get())
                row = len(self.running) - 1
                self.finish_step([self.prefill(row)], tokenizer, row)
            if self.running:
                self.finish_step(self.decode(), tokenizer, 0)

    def prefill(self, row: int) -> int:
        prompt = torch.tensor([self.running[row].prompt], device=self.device)
        return self.forward(row, prompt, torch.arange(prompt.shape[1], device=self.device)[None])[0]

    def decode(self) -> list[int]:
        tokens = torch.tensor([[g.tokens[-1]] for g in self.running], device=self.device)
        positions = torch.tensor([[g.position] for g in self.running], device=self.device)
        return self.forward(0, tokens, positions)

    def forward(self, row: int, tokens: torch.Tensor, positions: torch.Tensor) -> list[int]:
        """tokens, positions: [rows, tokens] int64; the next token of each row."""
        span = int(positions.max()) + 1
        self.cache.aim(row, positions, span)
        keys = torch.arange(span, device=self.device)
        mask: Any = (keys <= positions[..., None])[:, None]
        if self.window is not None:
            near = (keys > positions[..., None] - self.window)[:, None]
            mask = {"full_attention": mask, "sliding_attention": mask & near}
        given = {"input_ids": tokens, "position_ids": positions, "attention_mask": mask, "cache": self.cache}
        logits = self.model(**given, use_cache=True, logits_to_keep=1).logits
        return list(logits[:, -1].argmax(-1).tolist())

    def finish_step(self, tokens: list[int], tokenizer: Any, first: int) -> None:
        """Credits a step's tokens to the rows from `first` on, tells their clients, and closes gaps."""
        said: list[tuple[Generation, str, str | None]] = []
        for generation, token in zip(self.running[first:], tokens, strict=True):
            generation.tokens.append(token)
            text = generation.decoder.step(tokenizer.backend_tokenizer, token) or ""
            said.append((generation, text, self.end(generation)))
        for row in reversed(range(first, len(self.running))):
            if said[row - first][2] or self.running[row].cancelled:
                self.leave(row)
        assert self.events is not None
        self.events.call_soon_threadsafe(deliver, said)

    def end(self, generation: Generation) -> str | None:
        if generation.tokens[-1] in self.ends and not generation.ignore_eos:
            return "stop"
        full = generation.position + 1 >= self.context
        return "length" if full or len(generation.tokens) >= generation.limit else None

    def leave(self, row: int) -> None:
        """The last row takes the place of one that is done."""
        last = self.running.pop()
        if row < len(self.running):
            self.cache.move(len(self.running), row, last.position)
            self.running[row] = last


def deliver(said: list[tuple[Generation, str, str | None]]) -> None:
    for generation, text, finish in said:
        generation.pieces.put_nowait((text, finish))


class Service:
    """HTTP around the loop."""

    def __init__(self, loop: Loop, tokenizer: Any, name: str) -> None:
        self.loop, self.tokenizer, self.name = loop, tokenizer, name

    def routes(self) -> list[Route]:
        return [
            Route("/health", self.health),
            Route("/v1/models", self.models),
            Route("/v1/completions", self.generate, methods=["POST"]),
            Route("/v1/chat/completions", self.generate, methods=["POST"]),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({})

    async def models(self, request: Request) -> Response:
        model = {"id": self.name, "object": "model", "max_model_len": self.loop.context}
        return JSONResponse({"object": "list", "data": [model]})

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        chat = request.url.path.endswith("/chat/completions")
        try:
            generation = self.read(body, chat)
        except Refused as refusal:
            error = {"message": str(refusal), "type": "invalid_request_error", "param": None, "code": None}
            return JSONResponse({"error": error}, 400)
        self.loop.submit(generation)
        if body.get("stream"):
            options = body.get("stream_options") or {}
            return StreamingResponse(self.stream(generation, chat, options), media_type="text/event-stream")
        text, finish = "", None
        while finish is None:
            piece, finish = await generation.pieces.get()
            text += piece
        content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return JSONResponse(self.event(chat, content, finish) | {"usage": usage(generation)})

    def read(self, body: dict[str, Any], chat: bool) -> Generation:
        """A body as a request; raises Refused."""
        unknown = sorted(set(body) - TAKEN)
        if unknown:
            raise Refused(f"{unknown[0]} is not supported by this plain loop.")
        if body.get("temperature") not in (None, 0):
            raise Refused("temperature must be 0: this plain loop is greedy.")
        prompt = self.chat_prompt(body) if chat else body.get("prompt", "")
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, add_special_tokens=not chat)
        if not prompt or not all(isinstance(token, int) and 0 <= token < self.loop.words for token in prompt):
            raise Refused(f"the prompt must be a text or a list of token ids below {self.loop.words}.")
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        limit = int(asked or min(DEFAULT_TOKENS, max(1, self.loop.context - len(prompt))))
        if len(prompt) + limit > self.loop.context:
            sizes = f"{len(prompt)} tokens of prompt and {limit} of output"
            raise Refused(f"{sizes} do not fit in a context of {self.loop.context}.")
        ignore = bool(body.get("ignore_eos"))
        return Generation(prompt, limit, ignore, asyncio.Queue(), DecodeStream(skip_special_tokens=True))

    def chat_prompt(self, body: dict[str, Any]) -> str:
        try:
            options = {"tokenize": False, "add_generation_prompt": True}
            options |= body.get("chat_template_kwargs") or {}
            return str(self.tokenizer.apply_chat_template(body["messages"], **options))
        except Exception as error:
            raise Refused(f"the chat template cannot render these messages: {error}") from error

    def event(self, chat: bool, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": finish, "logprobs": None} | content
        kind = "chat.completion" if chat else "text_completion"
        return {"id": "0", "object": kind, "created": 0, "model": self.name, "choices": [choice]}

    async def stream(self, generation: Generation, chat: bool, options: dict[str, Any]) -> AsyncIterator[str]:
        """One event a token, then the reason of the end, then usage; a client that leaves frees its row."""
        counts = bool(options.get("continuous_usage_stats"))
        finish, sent = None, 0
        try:
            if chat:
                yield sse(self.event(chat, {"delta": {"role": "assistant", "content": ""}}, None))
            while finish is None:
                text, finish = await generation.pieces.get()
                sent += 1
                event = self.event(chat, {"delta": {"content": text}} if chat else {"text": text}, None)
                if counts:
                    event["usage"] = usage(generation, sent)
                yield sse(event)
            yield sse(self.event(chat, {"delta": {}} if chat else {"text": ""}, finish))
            if options.get("include_usage"):
                yield sse(self.event(chat, {}, None) | {"choices": [], "usage": usage(generation)})
            yield "data: [DONE]\n\n"
        finally:
            generation.cancelled = True


def usage(generation: Generation, sent: int | None = None) -> dict[str, int]:
    prompt, output = len(generation.prompt), len(generation.tokens) if sent is None else sent
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def sse(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A plain PyTorch loop behind an OpenAI-like server.")
    parser.add_argument("model", type=Path, help="folder with config.json and safetensors")
    parser.add_argument("--name", default="", help="the name that the model is served under")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--rows", type=int, default=64, help="requests at once")
    parser.add_argument("--context", type=int, default=4096, help="tokens of prompt and output")
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype)).to(device)
    loop = Loop(model.eval(), args.rows, args.context)

    def work() -> None:
        try:
            # Rows of the cache may be moved in no other mode than that which made them.
            with torch.inference_mode():
                loop.run(tokenizer)
        except Exception:
            # A loop that is dead must not look like one that is slow.
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=work, daemon=True).start()
    app = Starlette(routes=Service(loop, tokenizer, args.name or args.model.name).routes())
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
