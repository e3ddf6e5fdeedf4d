"""Questions -> answers on the screen, and the conversation that they make."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from onechip.chat.answer import Answer
from onechip.chat.ctrl_c import CtrlC
from onechip.chat.screen import Screen
from onechip.chat.server import Server
from onechip.chat.settings import Settings

ReadResult = Callable[[str], str]
"""The name of a called function -> what it gave; EOFError or KeyboardInterrupt: it gave nothing."""


class Conversation:
    """A conversation with one model.

    Attributes:
        settings: may be changed between two questions.
        messages: so far, in OpenAI's form, without the system prompt.
    """

    def __init__(self, server: Server, model: str, settings: Settings, screen: Screen, ctrl_c: CtrlC) -> None:
        self.settings = settings
        self.messages: list[dict[str, Any]] = []
        self._server = server
        self._model = model
        self._screen = screen
        self._ctrl_c = ctrl_c

    def new(self) -> None:
        """Forget what was said."""
        self.messages.clear()

    def again(self, read_result: ReadResult) -> bool:
        """Ask the last question anew; whether there was one."""
        asked = [n for n, message in enumerate(self.messages) if message["role"] == "user"]
        if not asked:
            return False
        question = self.messages[asked[-1]]["content"]
        before = self.messages[asked[-1] :]
        del self.messages[asked[-1] :]
        try:
            self.ask(question, read_result)
        finally:
            if len(self.messages) == asked[-1]:  # nothing came of it
                self.messages += before
        return True

    def ask(self, question: str, read_result: ReadResult | None = None) -> None:
        """Ask, show the answer, and go on while the model calls functions and their results are given.

        A question that came to no answer is not kept, so that it does not stand in the way of the next.

        Args:
            read_result: None: an answer that calls is the last one.

        Raises:
            EngineError: the server refuses, fails or is gone.
        """
        start = len(self.messages)
        self.messages.append({"role": "user", "content": question})
        try:
            while calls := self._answer():
                if read_result is None or not self._give_results(calls, read_result):
                    break
        finally:
            if self.messages[-1]["role"] != "assistant":
                del self.messages[start:]

    def _answer(self) -> list[dict[str, Any]]:
        """Let the model continue; the calls that it makes. Ctrl-C ends the answer, not the conversation."""
        answer, stopped = Answer(time.perf_counter()), False
        try:
            body = self.settings.body(self._model, self.messages)
            with self._ctrl_c.may_come(), self._server.answer(body) as events:
                for event in events:
                    for piece in answer.take(event, time.perf_counter()):
                        self._screen.show(piece, self.settings.thoughts)
        except KeyboardInterrupt:
            if not self._screen.talks:
                raise
            stopped = True
        finally:
            self._screen.end_line()
            if answer.finish is None:
                answer.calls.clear()  # they may be cut off
            if answer.text or answer.calls:
                self.messages.append(answer.message)
        self._screen.calls(answer.calls)
        self._screen.say(", ".join(part for part in (answer.figures(), "stopped" if stopped else "") if part))
        return answer.calls

    def _give_results(self, calls: list[dict[str, Any]], read_result: ReadResult) -> bool:
        """Ask for what the calls gave; False, and the calls are not kept, if that was not told."""
        try:
            results = [read_result(call["function"]["name"]) for call in calls]
        except (EOFError, KeyboardInterrupt):
            del self.messages[-1]
            self._screen.say("\nThe call was left without a result, so the question is not kept.")
            return False
        for call, result in zip(calls, results, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return True
