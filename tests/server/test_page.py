"""The chat page in a real browser, in front of a scripted engine and of acorn: what it does."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from onechip.config import ServeConfig
from onechip.server.openapi import document
from tests import browser
from tests.browser import TEXT, Tab
from tests.server.chat_page import FOCUSED, TOOL, WELL, ask, click, says, shown, use_tools, visit
from tests.server.process import ORDERS, PROBLEM, TOOLS, Process
from tests.server.scripted import (
    THINKING_CALL,
    Client,
    ScriptedEngine,
    error_of,
    model,
    prompt_of,
    running,
    wait_until,
)

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="there is no chromium here (Debian: chromium)"
)


def test_acorn_answers_and_calls_and_takes_a_result(opened: Tab, served: Process) -> None:
    tab = visit(opened, f"{served.url}/")
    tab.ask("state.settings.temperature = '0'")
    text = ask(tab, PROBLEM, 2)
    assert "#### 45" in text
    assert re.search(r"49 tokens · ([\d,.]+ tok/s · )?first token [\d.]+ m?s · prompt 35", text)
    use_tools(tab, TOOLS)
    question, arguments, result = ORDERS[0]
    assert "place_order" in ask(tab, question, 4)
    assert json.loads(tab.ask("document.querySelector('.call pre').textContent")) == arguments
    tab.write(result)
    tab.press("Enter")
    assert f"The result is {result}." in shown(tab, 6)
    assert f"The result is {result}." in tab.ask("find('spoken').textContent")
    assert tab.complaints == []
    assert {address.removeprefix(served.url) for address in tab.requests} <= {
        "/ready",
        "/v1/chat/completions",
    }


def test_the_page_is_no_part_of_the_api(client: Client) -> None:
    with client.send("GET", "/") as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        page = response.read()
    with client.send("HEAD", "/") as response:
        assert (response.status, response.headers["Content-Length"]) == (200, str(len(page)))
    with client.send("POST", "/", {}) as response:
        assert (response.status, set(response.headers["Allow"].split(", "))) == (405, {"GET", "HEAD"})
    error_of(client.ask("GET", "/page.html"), 404, "not_found_error")
    assert "/" not in document()["paths"]


def test_stop_ends_the_answer_and_frees_the_slot(tab: Tab, engine: ScriptedEngine) -> None:
    engine.say_word_for_ever()
    tab.write("Hi")
    tab.press("Enter")
    tab.wait_for("document.querySelector('.answer .said')?.textContent.length > 50")
    assert "Stop" in tab.ask(TEXT)
    tab.press("Escape")
    text = shown(tab, 2)
    wait_until(lambda: engine.requests[0].id in engine.cancelled)
    assert re.search(r"\d+ tokens · .*stopped", text)
    engine.windows = says("Fine.")
    assert "Fine." in ask(tab, "And now?", 4)
    assert "word word" in prompt_of(engine.requests[1])


def test_a_thought_is_folded_and_a_call_waits_for_its_result(tab: Tab, engine: ScriptedEngine) -> None:
    engine.windows = [THINKING_CALL[:4], THINKING_CALL[4:9], THINKING_CALL[9:]]
    use_tools(tab, [{"type": "function", "function": TOOL}])
    text = ask(tab, "Hi", 2)
    assert "Look." in text
    assert not tab.ask("document.querySelector('details').open")
    assert tab.ask("document.querySelector('.answer .said').textContent") == "Look."
    assert tab.ask("document.querySelector('details p').textContent") == "Hm."
    assert (tab.ask("document.querySelector('.call h3').textContent"), tab.ask(FOCUSED)) == (
        "Call of f",
        "TEXTAREA",
    )
    tab.ask("find('text').focus()")
    tab.write("never mind")
    tab.press("Enter")
    assert "waits for the result" in tab.ask(TEXT)
    engine.windows = says("Good.")
    tab.ask("document.querySelector('.results textarea').focus()")
    tab.write("sunny")
    tab.press("Enter")
    assert "Good." in shown(tab, 4)
    prompt = prompt_of(engine.requests[1])
    assert "sunny" in prompt
    assert 'call:f{s:<|"|>a"b<|"|>}' in prompt


def test_what_goes_wrong_is_said_in_place(tab: Tab, engine: ScriptedEngine) -> None:
    engine.queue_full = True
    assert "The queue is full." in ask(tab, "Hi", 2)
    engine.queue_full = False
    engine.error = "The device was lost."
    click(tab, "Try again")
    tab.wait_for("document.querySelector('.error').textContent === 'The device was lost.'")
    assert "Hello" in shown(tab, 2)
    engine.error = None
    tab.ask("state.settings.max_tokens = '-1'")
    click(tab, "Try again")
    tab.wait_for("document.querySelector('.error').textContent.startsWith('max_tokens')")
    tab.ask("state.settings.max_tokens = ''")
    click(tab, "Try again")
    tab.wait_for(WELL)
    assert "Hello you" in shown(tab, 2)


def test_a_question_that_was_refused_is_shown_and_not_sent_again(tab: Tab, engine: ScriptedEngine) -> None:
    engine.queue_full = True
    ask(tab, "Lost", 2)
    engine.queue_full = False
    assert "Lost" in ask(tab, "Now", 4)
    assert "user\nNow" in prompt_of(engine.requests[0])
    assert "Lost" not in prompt_of(engine.requests[0])


def test_a_key_is_asked_for_and_a_model_that_loads_is_waited_for(opened: Tab, engine: ScriptedEngine) -> None:
    go = threading.Event()

    def load(progress: Callable[[str, float], None]) -> Any:
        progress("compiling", 0.5)
        assert go.wait(60)
        return model(engine)

    with running(ServeConfig(api_key="sesame"), load) as (client, service):
        opened.open(f"http://127.0.0.1:{client.port}/")
        opened.wait_for("document.body.innerText.includes('Loading the model: compiling')")
        assert opened.ask("[find('send').disabled, document.querySelector('progress').value]") == [True, 0.5]
        opened.write("Hi")
        opened.press("Enter")
        go.set()
        opened.wait_for("state.ready && find('note').hidden")
        engine.loop = service.loop
        opened.press("Enter")
        assert "The API key is missing" in shown(opened, 2)
        click(opened, "Give a key")
        opened.write("sesame")
        opened.press("Enter")
        click(opened, "Try again")
        opened.wait_for(WELL)
        assert "Hello you" in shown(opened, 2)
        assert not opened.ask("JSON.stringify(localStorage).includes('sesame')")


def test_a_server_that_is_gone_is_said_to_be_and_waited_for(tab: Tab) -> None:
    def offline(is_so: bool) -> None:
        tab.send(
            "Network.emulateNetworkConditions",
            offline=is_so,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    offline(True)
    assert "The server does not answer: is it still running?" in ask(tab, "Hi", 2)
    tab.wait_for("document.body.innerText.includes('asking again') && find('send').disabled")
    offline(False)
    tab.wait_for("state.ready && find('note').hidden")
    click(tab, "Try again")
    tab.wait_for(WELL)
    assert "Hello you" in shown(tab, 2)


def test_a_reload_keeps_the_chat_and_the_settings(tab: Tab, engine: ScriptedEngine, client: Client) -> None:
    url = f"http://127.0.0.1:{client.port}/"
    ask(tab, "Hi", 2)
    tab.ask("state.settings.system = 'Be brief.'")
    engine.say_word_for_ever()
    tab.write("More")
    tab.press("Enter")
    tab.wait_for("state.messages[3]?.content.length > 20")
    tab.open(url)
    tab.wait_for("state.ready")
    text = shown(tab, 4)
    assert re.search(r"Hi\n[\s\S]*Hello you[\s\S]*More[\s\S]*word word[\s\S]*stopped", text)
    wait_until(lambda: len(engine.cancelled) == 1)
    engine.windows = says("Yes.")
    ask(tab, "Still there?", 6)
    assert "Be brief." in prompt_of(engine.requests[2])
    click(tab, "New chat")
    tab.open(url)
    tab.wait_for("state.ready")
    assert "Be brief." in tab.ask("state.settings.system")
    assert "Hello you" not in tab.ask(TEXT)


def test_a_question_is_edited_and_an_answer_asked_for_again(tab: Tab, engine: ScriptedEngine) -> None:
    ask(tab, "One", 2)
    ask(tab, "Two", 4)
    click(tab, "Regenerate")
    wait_until(lambda: len(engine.requests) == 3)
    shown(tab, 4)
    assert engine.requests[2].prompt == engine.requests[1].prompt
    click(tab, "Edit")
    assert tab.ask("[find('text').value, document.activeElement.id]") == ["Two", "text"]
    tab.press("Escape")
    assert (tab.ask("find('text').value"), tab.ask("state.messages.length")) == ("", 4)
    click(tab, "Edit")
    tab.ask("find('text').value = 'Three'")
    tab.press("Enter")
    wait_until(lambda: len(engine.requests) == 4)
    text = shown(tab, 4)
    assert ("Three" in text, "Two" in text) == (True, False)
    click(tab, "New chat")
    assert "Three" not in tab.ask(TEXT)
    click(tab, "Bring it back")
    assert "Three" in tab.ask(TEXT)
