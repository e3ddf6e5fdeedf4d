"""`onechip chat` as a person has it, on a terminal, and piped; in front of a scripted engine and of acorn."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from onechip.cache import cache_root
from onechip.chat import commands
from onechip.chat.answer import Answer, Piece
from onechip.chat.conversation import Conversation
from onechip.chat.ctrl_c import CtrlC
from onechip.chat.run import talk
from onechip.chat.screen import Screen
from onechip.chat.server import Server, events
from onechip.chat.settings import Settings
from onechip.config import ChatConfig, ServeConfig
from onechip.errors import EngineError, UsageError
from tests.server.process import ORDERS, PROBLEM, TOOLS
from tests.server.scripted import (
    THINKING_CALL,
    TOKENIZER,
    Client,
    ScriptedEngine,
    model,
    prompt_of,
    running,
    wait_until,
)

COMMAND = [sys.executable, "-m", "onechip.cli", "chat"]
TIMEOUT_S = 120.0
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"s": {"type": "string"}}}}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def client(engine: ScriptedEngine) -> Iterator[Client]:
    with running(ServeConfig(), lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        engine.loop = service.loop
        yield client


@pytest.fixture
def url(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}"


def piped(question: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    done = subprocess.run(
        [*COMMAND, *arguments], input=question, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


class Terminal:
    """A terminal with `onechip chat` on it.

    Attributes:
        seen: all that was written to it.
    """

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self._chat = psutil.Process(process.pid)
        self._from = 0
        self.seen = ""

    def wait_for(self, text: str, seconds: float = TIMEOUT_S) -> str:
        """What was written since the last wait, up to `text`."""
        end = time.monotonic() + seconds
        while (found := self.seen.find(text, self._from)) < 0:
            ready = select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, f"{text!r} did not come: {self.seen[self._from :]!r}"
            try:
                more = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                more = b""
            assert more, f"the chat ended before it wrote {text!r}: {self.seen[self._from :]!r}"
            self.seen += more.decode(errors="replace").replace("\r\n", "\n")
        start, self._from = self._from, found + len(text)
        return self.seen[start:found]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt_line(self) -> None:
        """Press Ctrl-C while a line is typed, when the chat waits for the next key.

        Python notes one that comes while readline still deals with the key before, but acts on it only at the
        end of the line, or with the next Ctrl-C.
        """
        wait_until(lambda: self._chat.status() == psutil.STATUS_SLEEPING, TIMEOUT_S)
        self.type("\x03")


@contextmanager
def on_a_terminal(tmp_path: Path, *arguments: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """The chat on a terminal of its own, whose Ctrl-C reaches it as a signal; leaving waits for its end.

    It has a cache folder of its own but for compiled programs.
    """
    compiled = cache_root() / "executables"
    compiled.mkdir(parents=True, exist_ok=True)
    (tmp_path / "executables").symlink_to(compiled)
    master, slave = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=take_terminal,
        env=os.environ | {"ONECHIP_CACHE_DIR": str(tmp_path), "TERM": "dumb"},
    )
    os.close(slave)
    try:
        yield Terminal(master, process), process
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_piped_the_answer_is_all_that_is_printed(url: str, engine: ScriptedEngine) -> None:
    assert piped("Hi\nthere", "--url", url, "--system", "Be brief.", "--set", "seed=3") == (
        0,
        "Hello you\n",
        "",
    )
    (request,) = engine.requests
    assert "Hi\nthere" in prompt_of(request)
    assert "Be brief." in prompt_of(request)
    assert request.sampling.seed == 3


def test_piped_a_call_is_a_line_of_json(url: str, engine: ScriptedEngine, tmp_path: Path) -> None:
    engine.windows = [THINKING_CALL]
    (tmp_path / "tools.json").write_text(json.dumps(TOOL))
    code, out, err = piped("Hi", "--url", f"{url}/v1", "--tools", str(tmp_path / "tools.json"))
    assert (code, out, err) == (0, 'Look.\n{"name": "f", "arguments": {"s": "a\\"b"}}\n', "")


def test_what_goes_wrong_is_one_sentence(url: str, engine: ScriptedEngine) -> None:
    engine.queue_full = True
    assert piped("Hi", "--url", url) == (5, "", "onechip: The queue is full.\n")
    engine.queue_full, engine.error = False, "The device was lost."
    assert piped("Hi", "--url", url) == (5, "Hello\n", "onechip: The device was lost.\n")


def test_no_server_and_no_question(client: Client) -> None:
    code, out, err = piped("Hi", "--url", "http://127.0.0.1:1")
    assert (code, out) == (5, "")
    assert err.startswith("onechip: No server answers at http://127.0.0.1:1: start one")
    assert piped("", "--url", "http://127.0.0.1:1")[0] == 2


def test_a_server_with_a_key(engine: ScriptedEngine) -> None:
    with running(ServeConfig(api_key="sesame"), lambda progress: model(engine)) as (client, service):
        wait_until(lambda: service.state == "ready")
        engine.loop = service.loop
        url = f"http://127.0.0.1:{client.port}"
        with closing(Server(url)) as stranger, pytest.raises(EngineError, match="API key is missing"):
            stranger.model()
        assert piped("Hi", "--url", url, "--api-key", "sesame")[:2] == (0, "Hello you\n")


def test_a_model_that_can_not_be_loaded_ends_the_chat() -> None:
    code, out, err = piped("Hi", "/no/such/model")
    assert (code, out) == (3, "")
    assert err.startswith("onechip: /no/such/model")
    assert err.count("\n") == 1


def test_a_conversation_with_acorn_and_the_end_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    with on_a_terminal(tmp_path, "acorn", "--set", "temperature=0") as (terminal, process):
        terminal.wait_for("/help says what there is, Ctrl-D leaves.", 400)  # a first start compiles
        (server,) = [child for child in psutil.Process(process.pid).children() if "serve" in child.cmdline()]
        terminal.wait_for("> ")
        terminal.type(f"{PROBLEM}\n")
        assert "#### 45" in terminal.wait_for("49 tokens, ")
        assert "first token " in terminal.wait_for("> ")
        terminal.type(f"/tools {tmp_path}/tools.json\n")
        terminal.wait_for("1 tools.")
        question, _, result = ORDERS[0]
        terminal.type(f"{question}\n")
        assert '"item": "salad"' in terminal.wait_for("result of place_order: ")
        terminal.type(f"{result}\n")
        terminal.wait_for(f"The result is {result}.")
        terminal.wait_for("> ")
        terminal.type("\x04")
    assert not server.is_running()
    assert PROBLEM in (tmp_path / "chat_history").read_text()
    assert (tmp_path / "chat_history").stat().st_mode & 0o077 == 0


def test_ctrl_c_ends_the_answer_and_not_the_chat(tmp_path: Path, url: str, engine: ScriptedEngine) -> None:
    engine.say_word_for_ever()
    with on_a_terminal(tmp_path, "--url", url) as (terminal, _):
        terminal.wait_for("> ")
        terminal.type("Go on\n")
        terminal.wait_for("word word word")
        terminal.type("\x03")
        terminal.wait_for("stopped")
        terminal.wait_for("> ")
        wait_until(lambda: engine.requests[0].id in engine.cancelled)
        engine.windows = [[*TOKENIZER.encode("Fine."), 106]]
        terminal.type("And now?\n")
        terminal.wait_for("Fine.")
        terminal.wait_for("> ")
        assert "word word" in prompt_of(engine.requests[1])
        terminal.type("half a line")
        terminal.wait_for("line")
        terminal.interrupt_line()
        terminal.wait_for("/exit leaves.")
        terminal.type("/exit\n")


class Mashed(Screen):
    """Ctrl-C is pressed whenever something is written on it, up to `presses` times."""

    presses = 4

    def _write(self, text: str, dim: bool = False) -> None:
        super()._write(text, dim)
        if self.presses:
            self.presses -= 1
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_pressed_again_and_again(
    url: str, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends what it may end, and what comes of that is kept and said, whatever is pressed meanwhile."""
    lines = iter(["Go on", "/set", "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    engine.say_word_for_ever()
    before, ctrl_c, screen = signal.getsignal(signal.SIGINT), CtrlC(), Mashed(talks=True)
    with closing(Server(url)) as server, ctrl_c.held():
        conversation = Conversation(server, "acorn", Settings(), screen, ctrl_c)
        try:
            talk(conversation, screen, ctrl_c)
        except KeyboardInterrupt:
            pytest.fail("Ctrl-C ended the chat")
        assert screen.presses == 0
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]
    shown = capsys.readouterr().out
    assert shown.count("stopped") == 1
    assert shown.count("/exit leaves.") == 2
    assert shown.count("thoughts shown") == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_commands(tmp_path: Path, url: str, engine: ScriptedEngine) -> None:
    (tmp_path / "tools.json").write_text(json.dumps([TOOL]))
    with on_a_terminal(tmp_path, "--url", url) as (terminal, _):

        def enter(text: str, awaited: str) -> str:
            terminal.wait_for("> ")
            terminal.type(f"{text}\n")
            return terminal.wait_for(awaited)

        enter("/help", "ends an answer")
        enter("/nonsense", "There is no command /nonsense: /help lists them.")
        enter("/again", "Nothing was asked yet.")
        enter("/system Be kind.", "The system prompt is set.")
        enter("/set temperature 0", "temperature 0.0")
        enter("/set temperature warm", "temperature 'warm' is not a number.")
        enter("/set warmth 1", "There is no setting 'warmth'")
        enter("/set thinking low", "thinking low")
        enter(f"/tools {tmp_path}/missing", "cannot be read: No such file or directory.")
        enter('"""one', ". ")
        terminal.type('two"""\n')
        terminal.wait_for("Hello you")
        assert "<|think|>" in prompt_of(engine.requests[0])
        assert "Be kind." in prompt_of(engine.requests[0])
        assert "one\ntwo" in prompt_of(engine.requests[0])
        enter("/again", "Hello you")
        assert engine.requests[1].prompt == engine.requests[0].prompt
        enter(f"/tools {tmp_path}/tools.json", "1 tools.")
        engine.windows = [THINKING_CALL]
        assert "Hm." in enter("call", "Look.")
        terminal.wait_for("result of f: ")
        terminal.type("\x04")
        terminal.wait_for("the question is not kept")
        engine.windows = [[*TOKENIZER.encode("\x1b]0;title\x07<|channel>thought\nHm.<channel|>red"), 106]]
        enter("/set thoughts hidden", "thoughts hidden")
        shown = enter("//is it?", "red")
        assert "Hm." not in shown
        assert "]0;title" in shown
        assert "\x07" not in shown
        assert "/is it?" in prompt_of(engine.requests[-1])
        assert "call" not in prompt_of(engine.requests[-1]).partition("one\ntwo")[2]
        enter("/new", "A new conversation.")
        engine.queue_full = True
        enter("lost", "The queue is full.")
        engine.queue_full = False
        enter("last", "red")
        assert "lost" not in prompt_of(engine.requests[-1])
        assert "one\ntwo" not in prompt_of(engine.requests[-1])
        terminal.wait_for("> ")
        terminal.type("\x04")


def test_events_are_read_wherever_they_are_cut() -> None:
    stream = ': a comment\r\ndata: {"é": "\u2028€"}\r\n\r\nevent: x\rdata:a\rdata: b\r\r'
    data = (stream + "data: 🐿\n\nid: 1\n\ndata: cut off").encode()
    expected = ['{"é": "\u2028€"}', "a\nb", "🐿"]
    assert list(events(data[at : at + 1] for at in range(len(data)))) == expected
    for cut in range(len(data) + 1):
        assert list(events([data[:cut], data[cut:]])) == expected


def delta(**fields: object) -> dict[str, object]:
    return {"choices": [{"delta": fields, "finish_reason": None}]}


def test_an_answer_of_another_server_and_its_figures() -> None:
    answer = Answer(sent_s=10.0)
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    arrived = [
        (10.5, delta(role="assistant", content="")),
        (11.5, delta(reasoning="Hm.")),
        (12.0, delta(content="So", tool_calls=None)),
        (13.5, delta(tool_calls=[call])),
        (13.5, {"choices": [], "usage": {"completion_tokens": 11}}),
    ]
    pieces = [piece for now, event in arrived for piece in answer.take(event, now)]
    assert pieces == [Piece("thought", "Hm."), Piece("text", "So")]
    assert answer.figures() == "11 tokens, 5 tok/s, first token 1.50 s"
    assert answer.message["reasoning"] == "Hm."
    assert answer.message["tool_calls"] == [{"type": "function", **call}]


def test_tools_that_can_not_be_read_leave_those_that_are_there(tmp_path: Path) -> None:
    settings, screen = Settings(tools=[{"type": "function", "function": TOOL}]), Screen(talks=False)
    conversation = Conversation(Server("http://127.0.0.1:1"), "m", settings, screen, CtrlC())
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "nameless.json").write_text('[{"parameters": {}}]')
    for path, why in (
        ("~nobody-of-this-name/tools.json", "cannot be read"),
        (f"{tmp_path}/deep.json", "nested too deep"),
        (f"{tmp_path}/nameless.json", "without a name"),
    ):
        with pytest.raises(UsageError, match=why):
            commands.run(f"/tools {path}", conversation, screen, input)
        assert [tool["function"] for tool in settings.tools] == [TOOL]
    commands.run("/tools", conversation, screen, input)
    assert settings.tools == []


def test_settings_and_addresses() -> None:
    settings = Settings()
    for name, value in (("top_k", "5"), ("seed", "7"), ("seed", ""), ("thinking", "none")):
        settings.set(name, value)
    body = settings.body("m", [])
    assert (body["top_k"], "seed" in body, body["reasoning_effort"]) == (5, False, "none")
    for name, value in (("top_k", "1.5"), ("min_p", "nan"), ("thinking", "hard"), ("thoughts", "no")):
        with pytest.raises(UsageError, match=name):
            settings.set(name, value)
    settings.set("seed", "9" * 400)  # beyond any float; the server says what it takes
    with pytest.raises(UsageError, match="http://host:port"):
        ChatConfig(url="localhost:8000")
    keys = {"OPENAI_API_KEY": "theirs"}
    assert ChatConfig(url="https://x").with_environment(keys).api_key == "theirs"
    assert ChatConfig().with_environment(keys).api_key is None
