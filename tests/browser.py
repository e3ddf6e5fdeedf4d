"""A real browser for tests of pages: Debian's chromium without a window, told what to do over a pipe.

`python -m tests.browser PAGE FOLDER` photographs a page, wide and narrow, light and dark, and prints it.

The Chrome DevTools Protocol over --remote-debugging-pipe: JSON objects, each ended by a NUL byte, to file
descriptor 3 of the browser and from its descriptor 4. So no port, and no package for WebSockets, is needed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe"),
)
ANSWER_S = 60.0
"""A busy machine of two cores takes seconds to start it."""

TEXT = "document.body.innerText"
WIDE = "document.documentElement.scrollWidth"
OUTSIDE = """[...document.querySelectorAll("body *")].filter(found => {
  const box = found.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !found.closest(".scroll, svg, pre");
}).map(found => found.outerHTML.slice(0, 120))"""
"""Elements that reach over the right edge, but for what stands in boxes that scroll by themselves."""
CONTRAST = """(() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(part => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = found => {
    for (let at = found; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = "p, li, td, th, dt, dd, summary, figcaption, h1, h2, h3, a, button, label, pre, code";
  const worst = [...document.querySelectorAll(texts)].map(found => {
    const [a, b] = [light(getComputedStyle(found).color), light(behind(found))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), found.outerHTML.slice(0, 80)];
  });
  return worst.sort((x, y) => x[0] - y[0])[0];
})()"""
"""The lowest contrast of text (WCAG 2.2), and where."""


class Tab:
    """One page of the browser.

    Attributes:
        requests: addresses that it asked for since it was opened.
        complaints: what came to its console, and its errors.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded: set[str] = set()
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, self, **params)

    def happened(self, event: dict[str, Any]) -> None:
        """Keeps what matters of an event."""
        match event["method"]:
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
            case "Runtime.consoleAPICalled" | "Log.entryAdded" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(event["params"]))
            case "Page.lifecycleEvent" if event["params"]["name"] == "load":
                self._loaded.add(event["params"]["loaderId"])

    def open(self, page: Path | str) -> None:
        """Loads a file or an address, to the end; that the page before it was loaded may be told late."""
        url = page if isinstance(page, str) else page.absolute().as_uri()
        loader = self.send("Page.navigate", url=url)["loaderId"]
        while loader not in self._loaded:
            self._browser.receive(self)

    def look(self, width: int, height: int = 900, *, dark: bool = False, paper: bool = False) -> None:
        """What the page is shown on; a width below 600 is a phone."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme])

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + ANSWER_S
        while not (value := self.ask(expression)):
            assert time.monotonic() < end, f"{expression} did not come true; it shows {self.ask(TEXT)}"
            time.sleep(0.01)
        return value

    def write(self, text: str) -> None:
        """Types text where the focus is."""
        self.send("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Presses a key, such as Enter, Tab, Escape."""
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32}[key]
        held: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        typed = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        self.send("Input.dispatchKeyEvent", type="keyDown", **held, **typed)
        self.send("Input.dispatchKeyEvent", type="keyUp", **held)

    def screenshot(self, path: Path, scale: float = 1) -> None:
        """The whole page, as PNG; `scale` is the picture's pixels for one of the page's."""
        height = self.ask("document.documentElement.scrollHeight")
        width = self.ask("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed on A4."""
        self.send("Emulation.setEmulatedMedia", media="")
        printed = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        path.write_bytes(base64.b64decode(printed["data"]))


class Browser:
    """A running browser; `open_tab` for a page of it."""

    def __init__(self, out: int, into: int) -> None:
        self._out = out
        self._into = into
        self._number = 0
        self._waiting = b""

    def open_tab(self) -> Tab:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session)

    def send(self, method: str, session: str = "", tab: Tab | None = None, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer; events meanwhile go to the tab."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self.receive(tab)) is None or answer["id"] != number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def receive(self, tab: Tab | None) -> dict[str, Any] | None:
        """Waits for one message; the answer to a command, or None for an event."""
        end = time.monotonic() + ANSWER_S
        while b"\0" not in self._waiting:
            assert select.select([self._into], [], [], max(0.0, end - time.monotonic()))[0], "no answer"
            more = os.read(self._into, 1 << 20)
            assert more, "the browser has ended"
            self._waiting += more
        line, _, self._waiting = self._waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "id" in message:
            return message
        if tab is not None:
            tab.happened(message)
        return None


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in the folder `profile`."""
    assert CHROMIUM is not None
    ours, theirs = os.pipe(), os.pipe()  # to it, from it
    to_read, to_write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (ours[0], theirs[1]))
    os.close(ours[0])
    os.close(theirs[1])

    def place() -> None:
        os.dup2(to_read, 3)
        os.dup2(to_write, 4)

    process = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=place,
        pass_fds=(3, 4),
        env=os.environ | {"HOME": str(profile)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        os.close(ours[1])  # ends it
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        os.close(theirs[0])


def photograph(page: Path, folder: Path) -> None:
    """Writes 1280-light.png, 1280-dark.png, 390-light.png, 390-dark.png and printed.pdf into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, started(Path(profile)) as found:
        tab = found.open_tab()
        for width in (1280, 390):
            for dark in (False, True):
                tab.look(width, dark=dark)
                tab.open(page)
                tab.screenshot(folder / f"{width}-{'dark' if dark else 'light'}.png")
        tab.look(1280)
        tab.pdf(folder / "printed.pdf")


if __name__ == "__main__":
    photograph(Path(sys.argv[1]), Path(sys.argv[2]))
