"""docs/images/chat.png and chat-phone.png: the chat page with acorn's answers, wide and narrow.

`python -m tools.chat_images` starts `onechip serve acorn` and a chromium without a window, and takes both.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from PIL import Image

from tests import browser
from tests.browser import Tab
from tests.server.process import ORDERS, PROBLEM, TOOLS, Process
from tests.server.scripted import wait_until

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES = (("chat", 860, False), ("chat-phone", 390, True))
SCALE = 2
COLOURS = 128


def main() -> None:
    """Take both pictures."""
    server = Process()
    try:
        wait_until(server.ready, 400)
        with tempfile.TemporaryDirectory() as profile, browser.started(Path(profile)) as found:
            tab = found.open_tab()
            tab.look(1280)
            tab.open(f"{server.url}/")
            tab.wait_for("state.ready")
            converse(tab)
            tab.ask("document.activeElement.blur()")
            for name, width, dark in PICTURES:
                tab.look(width, 600, dark=dark)
                tab.look(width, tab.ask("document.documentElement.scrollHeight"), dark=dark)
                tab.screenshot(IMAGES / f"{name}.png", SCALE)
                reduce(IMAGES / f"{name}.png")
    finally:
        server.interrupt()
        server.wait()


def converse(tab: Tab) -> None:
    """A word problem, and a function called whose result is given."""
    question, _, result = ORDERS[0]
    tab.ask(f"state.settings = {{ temperature: '0', tools: {json.dumps(json.dumps(TOOLS))} }}")
    for messages, text in ((2, PROBLEM), (4, question), (6, result)):
        tab.write(text)
        tab.press("Enter")
        tab.wait_for(f"!state.running && state.messages.length === {messages}")


def reduce(path: Path) -> None:
    """Fewer colours, which such a picture does not miss."""
    Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
