"""An OpenAI-compatible face for mistral.rs, whose wheel has a Python binding and no server.

Run by the interpreter of mistral.rs's own environment, by path, so it imports nothing of onechip. It adds no
scheduling: each request has a thread that waits for the binding's next chunk and writes it, and mistral.rs
batches. What the binding cannot do at once from several threads (`send_completion_request`) is not offered:
chat only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

JSON = dict[str, Any]

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "ignore_eos")
"""Fields that have the same name and meaning in the binding."""
TAKEN = {*SAMPLING, "model", "messages", "max_tokens", "max_completion_tokens", "stop", "stream"}
TAKEN |= {"stream_options", "tools", "chat_template_kwargs"}
"""All others are refused by name."""


class Refused(Exception):
    """The request asks for something that is not offered; answered with 400 and this message."""


class Mistral:
    """A loaded model: request bodies in, the binding's chunks out."""

    def __init__(self, options: argparse.Namespace) -> None:
        import mistralrs  # type: ignore[import-not-found]

        self.binding = mistralrs
        self.name = options.alias
        self.runner = mistralrs.Runner(
            which=self._which(Path(options.model), options),
            max_seqs=options.requests,
            # Measured prompts are unique; kept prefixes would be hits that no usage confesses.
            prefix_cache_n=0,
        )
        self.context: int | None = self.runner.max_sequence_length()
        self._sending = threading.Lock()

    def _which(self, model: Path, options: argparse.Namespace) -> Any:
        binding = self.binding
        dtype = {
            "bf16": binding.ModelDType.BF16,
            "f16": binding.ModelDType.F16,
            "f32": binding.ModelDType.F32,
        }
        if model.suffix == ".gguf":
            return binding.Which.GGUF(
                str(model.parent),
                model.name,
                dtype=dtype[options.dtype],
                mmproj_filename=options.projector,
                tok_model_id=options.config,
            )
        architecture = binding.MultimodalArchitecture.Gemma4
        return binding.Which.MultimodalPlain(str(model), arch=architecture, dtype=dtype[options.dtype])

    def ask(self, body: JSON) -> Iterator[Any]:
        """Chunks of one answer; raises Refused, and ValueError where mistral.rs refuses."""
        request = self._request(body)
        # Two threads in this call at once end in "Already borrowed"; it only puts the request in a queue.
        with self._sending:
            return iter(self.runner.send_chat_completion_request(request))

    def _request(self, body: JSON) -> Any:
        check(body)
        fields = {name: body[name] for name in SAMPLING if body.get(name) is not None}
        if body.get("tools"):
            fields["tool_schemas"] = [json.dumps(tool) for tool in body["tools"]]
        if body.get("stop"):
            fields["stop_seqs"] = [body["stop"]] if isinstance(body["stop"], str) else body["stop"]
        thinking = (body.get("chat_template_kwargs") or {}).get("enable_thinking", False)
        return self.binding.ChatCompletionRequest(
            messages=body["messages"],
            model="default",
            max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
            # The binding thinks unless told otherwise, Gemma 4's own template does not.
            enable_thinking=bool(thinking),
            stream=True,
            **fields,
        )


def check(body: JSON) -> None:
    """Raises Refused for a field that would be dropped in silence."""
    unknown = [name for name, value in body.items() if name not in TAKEN and value is not None]
    for field, known in (("stream_options", "include_usage"), ("chat_template_kwargs", "enable_thinking")):
        unknown += [f"{field}.{name}" for name in body.get(field) or {} if name != known]
    if unknown:
        raise Refused(f"{unknown[0]} is not offered by this front of mistral.rs.")
    if not isinstance(body.get("messages"), list):
        raise Refused("messages must be a list.")


def delta_of(chunk: Any) -> JSON:
    """What one chunk of the binding adds, as OpenAI's delta."""
    said = chunk.choices[0].delta
    delta: JSON = {}
    if said.content is not None:
        delta["content"] = said.content
    if said.reasoning_content is not None:
        delta["reasoning_content"] = said.reasoning_content
    if said.tool_calls:
        delta["tool_calls"] = [
            {
                "index": index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for index, call in enumerate(said.tool_calls)
        ]
    return delta


def usage_of(chunk: Any) -> JSON | None:
    """mistral.rs sends usage with the last chunk alone."""
    if chunk.usage is None:
        return None
    return {
        name: getattr(chunk.usage, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


def join(deltas: list[JSON]) -> JSON:
    """The message of an answer that was not asked for as a stream."""
    message: JSON = {"role": "assistant", "content": "".join(delta.get("content") or "" for delta in deltas)}
    reasoning = "".join(delta.get("reasoning_content") or "" for delta in deltas)
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    return (
        message
        | ({"reasoning_content": reasoning} if reasoning else {})
        | ({"tool_calls": calls} if calls else {})
    )


class Handler(BaseHTTPRequestHandler):
    """Serves `engine`, which is set before the server starts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: ClassVar[Any]

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self.path == "/v1/models":
            entry = {"id": self.engine.name, "object": "model", "max_model_len": self.engine.context}
            self._json(200, {"object": "list", "data": [entry]})
        else:
            self._error(404, f"There is no {self.path} here.")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path != "/v1/chat/completions":
            self._error(404, f"There is no {self.path} here: mistral.rs's binding streams chat only.")
            return
        try:
            body = json.loads(content)
            chunks = self.engine.ask(body)
            first = next(chunks)
        except (Refused, TypeError, KeyError, StopIteration, json.JSONDecodeError) as error:
            self._error(400, str(error) or "no answer")
        except ValueError as error:
            self._error(500, str(error))
        else:
            answer = self._stream if body.get("stream") else self._whole
            answer(body, _chain(first, chunks))

    def _stream(self, body: JSON, chunks: Iterator[Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        head = self._head("chat.completion.chunk")
        usage: JSON | None = None
        try:
            for chunk in chunks:
                usage = usage_of(chunk) or usage
                finish = chunk.choices[0].finish_reason
                # A chunk is a token; one that shows nothing yet (half a character) is still an event.
                delta = delta_of(chunk) or ({} if finish else {"content": ""})
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                self._event(head | {"choices": [choice]})
            if usage is not None and (body.get("stream_options") or {}).get("include_usage"):
                self._event(head | {"choices": [], "usage": usage})
        except ValueError as error:
            self._event({"error": {"message": str(error), "type": "server_error"}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _whole(self, body: JSON, chunks: Iterator[Any]) -> None:
        deltas: list[JSON] = []
        usage: JSON | None = None
        finish = None
        try:
            for chunk in chunks:
                deltas.append(delta_of(chunk))
                usage = usage_of(chunk) or usage
                finish = chunk.choices[0].finish_reason or finish
        except ValueError as error:
            self._error(500, str(error))
            return
        choice = {"index": 0, "message": join(deltas), "finish_reason": finish}
        self._json(200, self._head("chat.completion") | {"choices": [choice], "usage": usage})

    def _head(self, kind: str) -> JSON:
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.engine.name,
        }

    def _event(self, payload: JSON) -> None:
        self._chunk(b"data: " + json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        """One chunk of the body in one write, so that it leaves as one packet."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "error", "param": None, "code": None}})

    def _json(self, status: int, payload: JSON) -> None:
        content = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        """A client that hangs up is no event."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """No line a request."""


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="folder of safetensors, or a .gguf file")
    parser.add_argument("--alias", default="default", help="the name that the model is served under")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dtype", choices=("bf16", "f16", "f32"), default="bf16")
    parser.add_argument("--requests", type=int, default=64, help="the most that run at once")
    parser.add_argument("--projector", help="GGUF of the projector that goes with a .gguf model")
    parser.add_argument("--config", help="folder with the config.json and tokenizer of a .gguf model")
    options = parser.parse_args()
    Handler.engine = Mistral(options)
    # The binding's own threads do not stop for an interrupt.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Server(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
