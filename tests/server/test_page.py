"""The chat page in a real browser, in front of a scripted engine and of acorn."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onechip.config import ServeConfig
from onechip.server.openapi import document
from tests import browser
from tests.browser import CONTRAST, OUTSIDE, TEXT, WIDE, Tab
from tests.server.process import ORDERS, PROBLEM, TOOLS, Process
from tests.server.scripted import (
    THINKING_CALL,
    TOKENIZER,
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

FOCUSED = """(({ id, tagName, textContent }) =>
  id || (tagName === "BUTTON" ? textContent : tagName))(document.activeElement)"""
NAMELESS = """[...document.querySelectorAll("button, input, select, textarea")].filter(
  found => !found.textContent && !found.labels?.length).length"""
BROKEN = "window.broken = [], addEventListener('securitypolicyviolation', () => broken.push(1))"
WELL = "document.querySelector('.answer:last-child .error').hidden"
DONE = "!state.running && !document.querySelector('#stop:not([hidden])') && state.messages.length"
STOP_TOKEN = 106
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"}}}}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser.started(tmp_path_factory.mktemp("profile")) as found:
        yield found.open_tab()


@pytest.fixture
def tab(opened: Tab, client: Client) -> Tab:
    return visit(opened, f"http://127.0.0.1:{client.port}/")


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


def test_the_policy_lets_it_reach_nothing_else(tab: Tab, client: Client) -> None:
    with client.send("GET", "/") as response:
        policy = response.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")
    tab.ask(BROKEN)
    assert tab.ask("fetch('http://localhost:1/').catch(() => 'refused')") == "refused"
    tab.ask("document.body.append(make('script', {}, 'window.ran = 1'))")
    tab.ask("document.body.append(make('img', {src: 'http://localhost:1/'}))")
    tab.wait_for("broken.length >= 3")
    assert tab.ask("window.ran === undefined")
    assert tab.ask("try { document.body.innerHTML = 'x' } catch (error) { error.name }") == "TypeError"


ATTACK = "<img src=x onerror=pwned=1><script>pwned=1</script> [a](javascript:pwned=1) `<b>` **<i>x</i>**"


def test_nothing_that_a_model_says_is_read_as_html(tab: Tab, engine: ScriptedEngine) -> None:
    call = f'<|tool_call>call:f{{s:<|"|>{ATTACK}<|"|>}}<tool_call|>'
    spoken = f"<|channel>thought\n{ATTACK}\n<channel|>{ATTACK}\n```<u>\n{ATTACK}\n```\n{call}"
    engine.windows = [[*TOKENIZER.encode(spoken), 50]]
    use_tools(tab, TOOL)
    ask(tab, ATTACK, 2)
    assert tab.ask("document.querySelectorAll('main :is(img, script, b, i, u, a)').length") == 0
    assert tab.ask("window.pwned === undefined")
    assert tab.ask(f"document.querySelector('.user p').textContent === {json.dumps(ATTACK)}")
    assert tab.ask("document.querySelector('.thought p').textContent") == ATTACK
    assert tab.ask("document.querySelector('.code code').textContent") == ATTACK
    assert json.loads(tab.ask("document.querySelector('.call pre').textContent")) == {"s": ATTACK}
    assert tab.ask("document.querySelector('.answer p code').textContent") == "<b>"
    assert tab.ask("document.querySelector('.answer p strong').textContent") == "<i>x</i>"
    assert tab.complaints == []


def test_stop_ends_the_answer_and_frees_the_slot(tab: Tab, engine: ScriptedEngine) -> None:
    engine.windows = [TOKENIZER.encode("word ")] * 100_000
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


def test_what_moves_while_one_waits_stands_still_for_who_asks_for_that(
    tab: Tab, engine: ScriptedEngine
) -> None:
    engine.go.clear()
    tab.write("Hi")
    tab.press("Enter")
    tab.wait_for("document.querySelector('.waiting') !== null")
    moving = []
    for wish in ("no-preference", "reduce"):
        feature = {"name": "prefers-reduced-motion", "value": wish}
        tab.send("Emulation.setEmulatedMedia", features=[feature])
        moving.append(tab.ask("document.getAnimations().length"))
    assert moving == [1, 0]
    engine.go.set()
    assert "Hello you" in shown(tab, 2)


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
    tab.ask("state.settings.max_tokens = '1000000'")
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


KEPT = ["{", "3", '{"settings": 1, "messages": 2}', '{"messages": [{"role": "assistant", "content": "x"}]}']


@pytest.mark.parametrize("kept", KEPT)
def test_what_others_kept_at_this_address_does_no_harm(tab: Tab, client: Client, kept: str) -> None:
    tab.ask(f"removeEventListener('pagehide', leave), localStorage.setItem(STORE, {json.dumps(kept)})")
    tab.open(f"http://127.0.0.1:{client.port}/")
    tab.wait_for("state.ready")
    assert "Hello you" in ask(tab, "Hi", 2)


def test_a_reload_keeps_the_chat_and_the_settings(tab: Tab, engine: ScriptedEngine, client: Client) -> None:
    url = f"http://127.0.0.1:{client.port}/"
    ask(tab, "Hi", 2)
    tab.ask("state.settings.system = 'Be brief.'")
    engine.windows = [TOKENIZER.encode("word ")] * 100_000
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


def test_everything_can_be_done_by_keyboard(tab: Tab, engine: ScriptedEngine) -> None:
    assert tab.ask(FOCUSED) == "text"
    ask(tab, "Hi", 2)
    order = []
    for _ in range(7):
        tab.press("Tab")
        order.append(tab.ask(FOCUSED))
    assert order == ["send", "BODY", "new", "open", "Edit", "Copy", "Regenerate"]  # BODY: the browser's own
    tab.ask("find('open').focus()")
    tab.press("Enter")
    assert tab.ask("document.activeElement.name") == "system"
    tab.write("Be kind.")
    while tab.ask("document.activeElement.name") != "tools":
        tab.press("Tab")
    tab.write("[{]")
    tab.press("Tab")
    assert "These tools cannot be used" in tab.ask(TEXT)
    tab.press("Escape")
    assert tab.ask("[find('settings').open, document.activeElement.id, state.settings.system ?? '']") == [
        False,
        "open",
        "",
    ]
    tab.ask("find('text').focus()")
    tab.write("a")
    tab.press("Enter", shift=True)
    tab.write("b")
    assert tab.ask("find('text').value") == "a\nb"
    tab.press("Enter")
    shown(tab, 4)
    assert "a\nb" in prompt_of(engine.requests[1])
    assert tab.ask(NAMELESS) == 0


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("one\ntwo\n\nthree", "<p>one\ntwo</p><p>three</p>"),
        ("a **b** `c` **d\ne** `f", "<p>a <strong>b</strong> <code>c</code> **d\ne** `f</p>"),
        ("say:\n```py\n\nx = `1`\n```\nend", "<p>say:</p>[py]\nx = `1`[/]<p>end</p>"),
        ("````\n```\nin\n```\n````", "[]```\nin\n```[/]"),
        ("~~~\nstill open **", "[]still open **[/]"),
        ("#### 45 & <b>", "<p>#### 45 &amp; &lt;b&gt;</p>"),
    ],
)
def test_paragraphs_code_and_bold(tab: Tab, text: str, html: str) -> None:
    shown = tab.ask(f"blocksOf({json.dumps(text)}).map(blockNode).map(node => node.outerHTML).join('')")
    code = r'<div class="code"><.*?><span>(.*?)</span>.*?<pre.*?><code>(.*?)</code></pre></div>'
    assert re.sub(code, r"[\1]\2[/]", shown, flags=re.DOTALL) == html


LONG = f"A word {'x' * 300}, `code {'y' * 200}`\n```python\n{'print(1) ' * 40}\n```\nand more."


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_and_can_be_read(tab: Tab, engine: ScriptedEngine, dark: bool) -> None:
    engine.windows = [[*TOKENIZER.encode(f"<|channel>thought\n{LONG}<channel|>{LONG}"), STOP_TOKEN]]
    tab.look(360, 740, dark=dark)
    ask(tab, LONG, 2)
    tab.ask("document.querySelectorAll('details').forEach(found => found.open = true)")
    assert (tab.ask(WIDE), tab.ask(OUTSIDE)) == (360, [])
    ratio, where = tab.ask(CONTRAST)
    assert ratio >= 4.5, where
    click(tab, "Settings")
    assert (tab.ask(WIDE), tab.ask(OUTSIDE)) == (360, [])
    assert tab.ask("find('settings').getBoundingClientRect().bottom <= innerHeight")
    for width in (768, 1280):
        tab.look(width, dark=dark)
        assert tab.ask(WIDE) == width


def test_events_are_read_wherever_they_are_cut(tab: Tab) -> None:
    stream = ': a comment\r\ndata: {"é": "\u2028€"}\r\n\r\nevent: x\rdata:a\rdata: b\r\r'
    stream += "data: 🐿\n\nid: 1\n\ndata: cut off"
    expected = ['{"é": "\u2028€"}', "a\nb", "🐿"]
    read = """async (text) => {
      const bytes = new TextEncoder().encode(text), found = new Set();
      const read = async (parts) => {
        const give = (to) => { parts.forEach(part => to.enqueue(part)); to.close(); };
        const got = [], body = new ReadableStream({ start: give });
        for await (const data of events(body)) got.push(data);
        found.add(JSON.stringify(got));
      };
      for (let cut = 0; cut <= bytes.length; cut++) await read([bytes.slice(0, cut), bytes.slice(cut)]);
      await read([...bytes].map(byte => Uint8Array.of(byte)));
      return [...found];
    }"""
    (found,) = tab.ask(f"({read})({json.dumps(stream)})")
    assert json.loads(found) == expected
