"""What a conversation is asked with: sampling, thinking, system prompt, tools."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onechip.errors import UsageError

NUMBERS: dict[str, type[int] | type[float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "max_tokens": int,
    "seed": int,
}
THINKING = ("default", "none", "low", "medium", "high")
THOUGHTS = ("shown", "hidden")


@dataclass(slots=True)
class Settings:
    """What is not set is left to the server.

    Attributes:
        numbers: fields of the request, by the API's names.
        thinking: one of THINKING.
        thoughts: whether they are shown.
        tools: in OpenAI's form.
    """

    system: str = ""
    numbers: dict[str, int | float] = field(default_factory=dict)
    thinking: str = "default"
    thoughts: bool = True
    tools: list[dict[str, Any]] = field(default_factory=list)

    def set(self, name: str, value: str) -> None:
        """Set one by its name; an empty value takes it back. Raises UsageError."""
        if name == "thinking":
            self.thinking = _one_of(name, value or "default", THINKING)
        elif name == "thoughts":
            self.thoughts = _one_of(name, value or "shown", THOUGHTS) == "shown"
        elif name not in NUMBERS:
            known = ", ".join([*NUMBERS, "thinking", "thoughts"])
            raise UsageError(f"There is no setting {name!r}: there are {known}.")
        elif not value:
            self.numbers.pop(name, None)
        else:
            kind = NUMBERS[name]
            try:
                number = kind(value)
            except ValueError:
                number = math.nan
            if isinstance(number, float) and not math.isfinite(number):
                wanted = "a whole number" if kind is int else "a number"
                raise UsageError(f"{name} {value!r} is not {wanted}.")
            self.numbers[name] = number

    def load_tools(self, path: str) -> None:
        """Take the tools of a JSON file, one or a list, whole or only the functions. Raises UsageError."""
        try:
            found = json.loads(Path(os.path.expanduser(path)).read_text("utf-8"))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
        except RecursionError:
            raise UsageError(f"{path} is nested too deep.") from None
        except ValueError as error:
            raise UsageError(f"{path} is not JSON: {error}.") from None
        self.tools = [_tool(tool, path) for tool in (found if isinstance(found, list) else [found])]

    def body(self, model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """The request that continues `messages`."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        body: dict[str, Any] = {
            "model": model,
            "messages": [*system, *messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.numbers,
        }
        if self.thinking != "default":
            body["reasoning_effort"] = self.thinking
        if self.tools:
            body["tools"] = self.tools
        return body

    def describe(self) -> str:
        """All that is set, a line each."""
        lines = [f"{name} {value}" for name, value in self.numbers.items()]
        lines += [f"thinking {self.thinking}", f"thoughts {THOUGHTS[0 if self.thoughts else 1]}"]
        lines += [f"system {self.system}"] if self.system else []
        lines += [f"tools {', '.join(tool['function']['name'] for tool in self.tools)}"] if self.tools else []
        return "\n".join(lines)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name} {value!r} is unknown: give {', '.join(allowed)}.")
    return value


def _tool(found: Any, path: str) -> dict[str, Any]:
    whole = (
        found if isinstance(found, dict) and "function" in found else {"type": "function", "function": found}
    )
    function = whole["function"]
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UsageError(f"{path} has a tool without a name: a tool is an object with name and parameters.")
    return whole
