"""Training conversations: a Draw in, pieces of text in their order out, each marked as learned or not.

Prompts are printed by the chat template that ships, so training sees exactly what serving prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onechip.models.chat_template import ChatTemplate
from tools.acorn.calls import Call, Tool, training_call
from tools.acorn.draws import Draw
from tools.acorn.problems import Problem, training_problem
from tools.acorn.talk import any_talk

MODEL_DIR = Path(__file__).parents[2] / "src" / "onechip" / "models" / "acorn"

END_OF_TURN = "<turn|>"
END_OF_CALL = "<|tool_response>"

SYSTEM_SHARE = 0.15
SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "Be brief.",
    "Solve the problem step by step.",
    "You solve word problems and call functions.",
)
INSTRUCTION_SHARE = 0.25
INSTRUCTIONS = (
    "Solve it step by step.",
    "Think step by step.",
    "Solve this step by step, and end with #### and the number.",
    "Let's think step by step. At the end, write the answer after ####.",
    "Give the final answer as #### followed by the number.",
    "Show your work. The last line must be #### and the answer.",
)
THINKING_SHARE = 0.05
RESULT_SHARE = 0.2
CALLS_SHARE = 0.3
TALK_SHARE = 0.12

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of a conversation; `learned` is what the model itself says."""

    text: str
    learned: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says at one point: its text, and the message that stands for it in the history."""

    text: str
    message: Message


class Conversation:
    """Grows turn by turn; its pieces, joined, are what the template prints for the whole of it."""

    def __init__(self, template: ChatTemplate, call: Call | None = None, thinking: bool = False) -> None:
        self.call = call
        self._template = template
        self._tools = call.tools if call else None
        self._thinking = thinking
        self._messages: list[Message] = []
        self.printed = ""
        self.pieces: list[Piece] = []

    def hear(self, role: str, content: str, **fields: str) -> None:
        self._messages.append({"role": role, "content": content, **fields})

    def prompt(self) -> str:
        return self._template.render(self._messages, self._tools, enable_thinking=self._thinking)

    def say(self, reply: Reply) -> None:
        prompt = self.prompt()
        if not prompt.startswith(self.printed):
            raise ValueError(f"the template does not continue {self.printed!r} but prints {prompt!r}")
        self.pieces += [Piece(prompt[len(self.printed) :], False), Piece(reply.text, True)]
        self.printed = prompt + reply.text
        self._messages.append(reply.message)


def spoken(text: str) -> Reply:
    return Reply(text + END_OF_TURN, {"role": "assistant", "content": text})


def thought(problem: Problem) -> Reply:
    """The worked lines as a thought, the answer alone outside it."""
    lines = "\n".join(problem.lines)
    answer = problem.answer.rsplit("\n", 1)[1]
    text = f"<|channel>thought\n{lines}\n<channel|>{answer}{END_OF_TURN}"
    return Reply(text, {"role": "assistant", "content": answer})


def called(call: Call) -> Reply:
    """The call in Gemma's notation, keys sorted as the template sorts them."""
    values = (
        f"{key}:{value}" if isinstance(value, int) else f'{key}:<|"|>{value}<|"|>'
        for key, value in sorted(call.arguments.items())
    )
    name = call.name.replace(".", "_")
    text = f"<|tool_call>call:{name}{{{','.join(values)}}}<tool_call|>{END_OF_CALL}"
    function = {"name": name, "arguments": call.arguments}
    return Reply(
        text, {"role": "assistant", "content": None, "tool_calls": [{"id": "0", "function": function}]}
    )


class Sampler:
    """Makes conversations with the template that ships."""

    def __init__(self) -> None:
        self._template = ChatTemplate.load(MODEL_DIR)

    def short(self, draw: Draw) -> list[Piece]:
        """One question and its answer, of any kind."""
        conversation = self._open(draw, training_call(draw) if draw.chance(CALLS_SHARE) else None)
        if conversation.call:
            conversation.hear("user", conversation.call.question)
            _call(draw, conversation)
        elif draw.chance(THINKING_SHARE):
            conversation = Conversation(self._template, thinking=True)
            problem = training_problem(draw)
            conversation.hear("user", problem.question)
            conversation.say(thought(problem))
        else:
            _chat(draw, conversation)
        return conversation.pieces

    def long(self, draw: Draw) -> list[Piece]:
        """A chat of many turns, some with a call among them, of up to about a thousand tokens."""
        conversation = self._open(draw, training_call(draw) if draw.chance(CALLS_SHARE) else None)
        turns = draw.number(4, 11)
        place = draw.number(0, turns - 1)
        for turn in range(turns):
            if conversation.call and turn == place:
                conversation.hear("user", conversation.call.question)
                _call(draw, conversation, result_share=1)
            else:
                _chat(draw, conversation)
        return conversation.pieces

    def prompt(self, question: str, tools: list[Tool] | None = None) -> str:
        """The prompt of a chat that has only this question."""
        return self._template.render([{"role": "user", "content": question}], tools)

    def late_prompt(self, draw: Draw, question: str, is_late: Callable[[str], bool]) -> str:
        """The prompt of a question at the end of a chat that has grown until `is_late` of its text."""
        conversation = self._open(draw, None)
        while not is_late(conversation.printed):
            _chat(draw, conversation)
        conversation.hear("user", question)
        return conversation.prompt()

    def _open(self, draw: Draw, call: Call | None) -> Conversation:
        conversation = Conversation(self._template, call)
        if draw.chance(SYSTEM_SHARE):
            conversation.hear("system", draw.among(SYSTEM_MESSAGES))
        return conversation


def _chat(draw: Draw, conversation: Conversation) -> None:
    """One turn of small talk or one word problem."""
    if draw.chance(TALK_SHARE):
        talk = any_talk(draw)
        conversation.hear("user", talk.question)
        conversation.say(spoken(talk.answer))
    else:
        problem = training_problem(draw)
        conversation.hear("user", problem.question + _instruction(draw))
        conversation.say(spoken(problem.answer))


def _call(draw: Draw, conversation: Conversation, result_share: float = RESULT_SHARE) -> None:
    """The call that the conversation is about, and sometimes its result."""
    if conversation.call is None:
        raise ValueError("a conversation without tools has no call")
    conversation.say(called(conversation.call))
    if draw.chance(result_share):
        result = str(draw.number(2, 999))
        conversation.hear("tool", result, tool_call_id="0")
        conversation.say(spoken(f"The result is {result}."))


def _instruction(draw: Draw) -> str:
    if not draw.chance(INSTRUCTION_SHARE):
        return ""
    return draw.pick(" ", "\n", "\n\n") + draw.among(INSTRUCTIONS)


def texts(seed: int, count: int) -> Iterator[str]:
    """Whole conversations as text, for the tokenizer."""
    sampler, draw = Sampler(), Draw(seed)
    for number in range(count):
        pieces = sampler.short(draw) if number % 8 else sampler.long(draw)
        yield "".join(piece.text for piece in pieces)
