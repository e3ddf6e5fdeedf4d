"""A mock engine that is well until one measured request: an illness in, a server that has it then out.

As a program (`python sick_engine.py PORT ILLNESS`, JSON) a ladder can start it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

from tests.ladder.clocks import Clock, ClockedEngine
from tests.ladder.mock_engine import Behaviour

STANDS_S = 1.0
HIT_TOKENS = 23


@dataclass
class Illness:
    """What an engine has.

    Attributes:
        what: "error" and "stall" (Behaviour.fault), "prompt" (counts one prompt token more), "short" (one
            output token less), "compile" (between two tokens nothing comes from it for STANDS_S), "restart"
            (its counters begin anew), "hit" (HIT_TOKENS of the prompt come from a cache), "memory" (every
            prompt that it had before comes from a cache, and is answered sooner), or "" (well).
        at: number of the measured request that it begins with.
        tokens: measured requests ask for so many output tokens.
        says: where it tells of it: "usage", "metrics", "log", or "" (nowhere).
    """

    what: str = ""
    at: int = 3
    tokens: int = 6
    says: str = ""


class SickEngine(ClockedEngine):
    """One Illness, on top of an otherwise healthy Behaviour."""

    def __init__(self, illness: Illness, clock: Clock | None = None, read_s: float = 0.0) -> None:
        super().__init__(Behaviour(), clock)
        self.illness = illness
        self.read_s = read_s
        self.measured = 0
        self.ill = False
        self.stands = False
        self.compiled = self.from_cache = 0
        self.born = 1000.0
        self.had: set[str] = set()

    async def complete(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        illness, counted = self.illness, self.limit(body) == self.illness.tokens
        self.ill = counted and self.measured == illness.at
        self.measured += counted
        fault = self.ill and illness.what in ("error", "stall")
        self.behaviour.fault = illness.what if fault else None
        self.behaviour.faulty = (len(self.behaviour.requests),)
        if self.ill and illness.what == "compile":
            self.compiled += 1
            if illness.says == "log":
                print("Compiling jit(decode) for shape [2]", flush=True)
            self.stands = not illness.says
        if self.ill and illness.what == "restart":
            self.born += 100
        await super().complete(path, body, writer)

    async def write(self, writer: asyncio.StreamWriter, event: bytes) -> None:
        if self.stands and b"w3" in event:
            self.stands = False
            await self.stand(STANDS_S)
        await super().write(writer, event)

    def usage(self, prompt: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"prompt_tokens": len(prompt)}
        cached = HIT_TOKENS if self.ill and self.illness.what == "hit" else 0
        if self.illness.what == "memory":
            key = json.dumps(prompt)
            cached = len(prompt) - 1 if key in self.had else 0
            self.had.add(key)
        self.from_cache += cached
        self.work(self.read_s * (len(prompt) - cached))
        if self.ill and self.illness.what == "prompt":
            found["prompt_tokens"] += 1
        if self.illness.says == "usage":
            found["prompt_tokens_details"] = {"cached_tokens": cached}
        return found

    def pieces(self, body: dict[str, Any], chat: bool) -> tuple[list[tuple[Any, int]], int, str]:
        self.behaviour.short = int(self.ill and self.illness.what == "short")
        return super().pieces(body, chat)

    async def answer(
        self, method: str, path: str, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        if path != "/metrics" or self.illness.says != "metrics":
            await super().answer(method, path, body, writer)
            return
        text = (
            f"process_start_time_seconds {self.born}\n"
            f'vllm:prefix_cache_hits_total{{engine="0"}} {self.from_cache}\n'
            f"onechip:compiles_after_warmup_total {self.compiled}\n"
        ).encode()
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % len(text) + text)


if __name__ == "__main__":
    asyncio.run(SickEngine(Illness(**json.loads(sys.argv[2]))).serve(int(sys.argv[1])))
