"""The chat page in a real browser: what it lets in and out, how it reads, how it is to eyes and hands."""

from __future__ import annotations

import json
import re

import pytest

from tests import browser
from tests.browser import CONTRAST, OUTSIDE, TEXT, WIDE, Tab
from tests.server.chat_page import FOCUSED, STOP_TOKEN, TOOL, ask, click, shown, use_tools
from tests.server.scripted import TOKENIZER, Client, ScriptedEngine, prompt_of

pytestmark = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="there is no chromium here (Debian: chromium)"
)

NAMELESS = """[...document.querySelectorAll("button, input, select, textarea")].filter(
  found => !found.textContent && !found.labels?.length).length"""


BROKEN = "window.broken = [], addEventListener('securitypolicyviolation', () => broken.push(1))"


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


KEPT = ["{", "3", '{"settings": 1, "messages": 2}', '{"messages": [{"role": "assistant", "content": "x"}]}']


@pytest.mark.parametrize("kept", KEPT)
def test_what_others_kept_at_this_address_does_no_harm(tab: Tab, client: Client, kept: str) -> None:
    tab.ask(f"removeEventListener('pagehide', leave), localStorage.setItem(STORE, {json.dumps(kept)})")
    tab.open(f"http://127.0.0.1:{client.port}/")
    tab.wait_for("state.ready")
    assert "Hello you" in ask(tab, "Hi", 2)


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
