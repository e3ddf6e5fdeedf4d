"""What tests of the chat page do: open it, ask, click, and read what it shows."""

from __future__ import annotations

import json
from typing import Any

from tests.browser import TEXT, Tab
from tests.server.scripted import TOKENIZER

FOCUSED = """(({ id, tagName, textContent }) =>
  id || (tagName === "BUTTON" ? textContent : tagName))(document.activeElement)"""
WELL = "document.querySelector('.answer:last-child .error').hidden"
DONE = "!state.running && !document.querySelector('#stop:not([hidden])') && state.messages.length"
STOP_TOKEN = 106
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"}}}}


def visit(tab: Tab, url: str) -> Tab:
    """Opens a page with an empty storage, and waits until questions are taken."""
    tab.look(1280)
    tab.open(url)
    tab.ask("removeEventListener('pagehide', leave), localStorage.clear(), sessionStorage.clear()")
    tab.open(url)
    tab.requests.clear()
    tab.complaints.clear()
    tab.wait_for("state.ready")
    return tab


def ask(tab: Tab, text: str, messages: int) -> str:
    """Sends a question by keyboard; what the page shows when there are that many messages."""
    tab.write(text)
    tab.press("Enter")
    return shown(tab, messages)


def shown(tab: Tab, messages: int) -> str:
    """What the page shows when there are that many messages and the last is complete."""
    tab.wait_for(f"{DONE} === {messages}")
    return str(tab.ask(TEXT)).replace("\xa0", " ")


def click(tab: Tab, label: str) -> None:
    found = (
        f"[...document.querySelectorAll('button')].filter(b => b.offsetParent && b.textContent === {label!r})"
    )
    tab.wait_for(f"{found}.length === 1")
    tab.ask(f"{found}[0].click()")


def says(text: str) -> list[list[int]]:
    """Windows of tokens for a text that the scripted engine shall say."""
    ids = [*TOKENIZER.encode(text), STOP_TOKEN]
    return [ids[at : at + 3] for at in range(0, len(ids), 3)]


def use_tools(tab: Tab, tools: Any) -> None:
    tab.ask(f"state.settings.tools = {json.dumps(json.dumps(tools))}")
