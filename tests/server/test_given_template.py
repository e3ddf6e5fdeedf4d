"""Chat templates from the command line and in old checkpoints, in a server of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onechip.models
from tests.server.process import Process
from tests.waiting import wait_until

ACORN = Path(onechip.models.__file__).parent / "acorn"
FIRST = Path(__file__).parents[1] / "models" / "first_gemma4.jinja"
QUESTION: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "There are 5 boxes with 7 cards each. How many cards are there?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "35"},
    ],
    "max_tokens": 8,
}


def prompt(process: Process) -> str:
    wait_until(process.ready, 400)
    rendered = process.ask("/apply-template", QUESTION)
    assert process.ask("/v1/chat/completions", QUESTION)["choices"][0]["message"]["role"] == "assistant"
    return str(rendered["prompt"])


def test_gemma4s_first_template_is_replaced_and_the_start_says_so(tmp_path: Path) -> None:
    for file in ACORN.iterdir():
        if file.name != "chat_template.jinja" and file.is_file():
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").write_text(FIRST.read_text())
    with Process(str(tmp_path)) as process:
        assert "<|tool_response>response:f{" in prompt(process)
        assert sum("Gemma 4's first" in line for line in process.log) == 1


def test_a_template_from_the_command_line() -> None:
    with Process("acorn", "--chat-template", str(FIRST)) as process:
        assert "<|turn>tool\n35<turn|>" in prompt(process)
        assert not any("Gemma 4's first" in line for line in process.log)
