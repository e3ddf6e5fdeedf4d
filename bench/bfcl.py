"""BFCL's 400 questions asked of a server end to end -> whether every answer is well-formed, and how fast.

    python -m bench.bfcl --data DIR [--url http://127.0.0.1:8000 | --model acorn] [--modes auto,required]

DIR holds simple_python.jsonl and simple_python_answers.jsonl (`onechip ladder --acc bfcl` fetches them into
~/.cache/onechip/data). Without --url our server is started on --model. Greedy, up to 64 questions at once,
each with its tools, in three modes: `tool_choice` "auto", "auto" with tools that are `strict`, "required".

An answer is well-formed if it is a valid chat completion and each of its calls has an id of its own, a name,
and arguments that are an object in JSON. Under "strict" and "required" a call must also be of a tool of its
request and satisfy that tool's JSON schema, unless the limit of tokens cut it off; under "required" there
must be one. Under "auto" a model may call what there is not, and that is only counted. Whether calls are
right is the ladder's question: what its scorer says is printed beside. Exit code 1: an answer is not what it
must be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema

from onechip.chat.child import served
from onechip.errors import OnechipError
from onechip.ladder import data
from onechip.ladder.data import Question, QuestionSet

MODES = ("auto", "strict", "required")
ENDS = ("stop", "length", "tool_calls")
LOAD_S = 600.0
ANSWER_S = 600.0
SHOWN = 5
"""Faults that are printed, of each mode."""


class Verdict(NamedTuple):
    """What is wrong with an answer, and what there is in it.

    Attributes:
        faults: in words; none: it is what it must be.
        counts: answers that call, whole calls, those that satisfy their schema, calls cut off, ...
    """

    faults: list[str]
    counts: Counter[str]


class Answered(NamedTuple):
    """A question, the status of the response and its body."""

    question: Question
    status: int
    body: Any


def judge(answered: Answered, mode: str) -> Verdict:
    """Whether the answer is what it must be in this mode."""
    faults: list[str] = []
    counts: Counter[str] = Counter(answers=1)
    if answered.status != 200:
        return Verdict([f"status {answered.status}: {answered.body}"], counts)
    try:
        (choice,) = answered.body["choices"]
        message, finish = choice["message"], choice["finish_reason"]
        calls = message.get("tool_calls") or []
        counts["tokens"] = answered.body["usage"]["completion_tokens"]
        content = message["content"]
    except (KeyError, TypeError, ValueError) as error:
        return Verdict([f"no chat completion ({error!r}): {answered.body}"], counts)
    counts.update({f"ended by {finish}": 1, "answers that call": int(bool(calls))})
    if message["role"] != "assistant" or finish not in ENDS or not isinstance(content, str | None):
        faults.append(f"role {message['role']}, ended by {finish}, content {content!r}")
    if content is None and not calls:
        faults.append("neither text nor calls")
    if len({call.get("id") for call in calls}) < len(calls):
        faults.append("two calls have the same id")
    for number, call in enumerate(calls):
        cut_off = finish == "length" and number == len(calls) - 1
        faults += _judge_call(call, answered.question, mode != "auto", cut_off, counts)
    if mode == "required" and not calls and finish != "length":
        faults.append(f"no call, but {content!r}")
    return Verdict(faults, counts)


def _judge_call(
    call: Any, question: Question, held: bool, cut_off: bool, counts: Counter[str]
) -> Iterator[str]:
    """Faults of one call; counts whether it was cut off, and whether it satisfies its schema.

    Args:
        held: the server holds calls to the schemas of the request's tools.
    """
    counts["calls cut off" if cut_off else "whole calls"] += 1
    try:
        name, text = call["function"]["name"], call["function"]["arguments"]
        arguments = json.loads(text)
    except (KeyError, TypeError, ValueError) as error:
        yield f"no call ({error!r}): {call}"
        return
    if call.get("type") != "function" or not call.get("id") or not isinstance(arguments, dict):
        yield f"no call: {call}"
        return
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in question.fields["tools"]}
    if name not in schemas:
        counts["calls of no tool of the request"] += 1
        if held:
            yield f"{name} is no tool of the request ({', '.join(schemas)})"
        return
    wrong = jsonschema.Draft202012Validator(schemas[name]).iter_errors(arguments)
    first = next(iter(wrong), None)
    counts["whole calls that satisfy their schema"] += first is None and not cut_off
    if first is not None and held and not cut_off:
        yield f"{name}({text}): {first.message}"


async def ask(
    url: str, questions: QuestionSet, mode: str, at_once: int, limit: int
) -> tuple[list[Answered], float]:
    """All questions, `at_once` of them at a time, and the seconds that it took."""
    room = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once)

    choice = "required" if mode == "required" else "auto"
    more = {"temperature": 0, "max_tokens": limit, "tool_choice": choice}

    async def one(question: Question) -> Answered:
        tools = [_strict(tool) if mode == "strict" else tool for tool in question.fields["tools"]]
        async with room:
            response = await client.post(
                "/v1/chat/completions", json=question.fields | more | {"tools": tools}
            )
        return Answered(question, response.status_code, _decoded(response))

    async with httpx.AsyncClient(base_url=url, timeout=ANSWER_S, limits=limits) as client:
        start = time.perf_counter()
        answers = await asyncio.gather(*map(one, questions.questions))
        return answers, time.perf_counter() - start


def _strict(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": True}}


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


def report(answers: Sequence[Answered], mode: str, seconds: float, questions: QuestionSet) -> int:
    """Prints the figures of a mode; returns how many answers are not what they must be."""
    counts: Counter[str] = Counter()
    faulty = []
    for answered in answers:
        verdict = judge(answered, mode)
        counts.update(verdict.counts)
        counts["right by the ladder's scorer"] += _is_right(answered, questions.headline)
        if verdict.faults:
            faulty.append(f"{answered.question.id}: {'; '.join(verdict.faults)}")
    tokens = counts.pop("tokens", 0)
    print(f"\n{mode}: {len(answers) - len(faulty)} of {len(answers)} answers are well-formed")
    print(f"{seconds:12.1f}  s, {tokens:,} tokens, {tokens / seconds:,.0f} tokens/s")
    for name, count in counts.items():
        print(f"{count:12,}  {name}")
    for fault in faulty[:SHOWN]:
        print(f"  {fault[:400]}")
    if len(faulty) > SHOWN:
        print(f"  and {len(faulty) - SHOWN} more")
    return len(faulty)


def _is_right(answered: Answered, headline: str) -> bool:
    try:
        message = answered.body["choices"][0]["message"]
        calls = [dict(call["function"]) for call in message.get("tool_calls") or []]
    except (KeyError, TypeError, IndexError):
        return False
    return answered.question.score(message.get("content") or "", calls)[1][headline]


@contextlib.contextmanager
def server(model: str) -> Iterator[str]:
    """`onechip serve MODEL` on a free port; its URL. Raises OnechipError if it does not come up."""
    with served(model) as child:
        deadline = time.monotonic() + LOAD_S
        while not _is_ready(child.url):
            child.check()
            if time.monotonic() > deadline:
                raise OnechipError("The server did not become ready.")
            time.sleep(0.2)
        yield child.url


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready").status_code == 200
    except httpx.TransportError:  # it has ended; the child says why
        return False


def write(path: Path, answers: Sequence[Answered], mode: str) -> None:
    """Append every answer to `path`, a line of JSON each."""
    with path.open("a", encoding="utf-8") as file:
        for answered in answers:
            row = {"mode": mode, "id": answered.question.id, "status": answered.status}
            file.write(json.dumps(row | {"answer": answered.body}, ensure_ascii=False) + "\n")


def run(given: argparse.Namespace, modes: Sequence[str]) -> int:
    """Asks and reports; returns how many answers are not what they must be."""
    (questions,) = data.load("bfcl", given.data, given.max_tokens)
    questions = replace(questions, questions=questions.questions[: given.questions])
    faulty = 0
    with contextlib.nullcontext(given.url) if given.url else server(given.model) as url:
        for mode in modes:
            answers, seconds = asyncio.run(ask(url, questions, mode, given.at_once, given.max_tokens))
            faulty += report(answers, mode, seconds, questions)
            if given.out:
                write(given.out, answers, mode)
    return faulty


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--data", type=Path, required=True, help="folder of the questions")
    words.add_argument("--url", help="of a server that runs; left out, ours is started")
    words.add_argument("--model", default="acorn", help="for the server that is started")
    words.add_argument("--modes", default=",".join(MODES), help="auto, strict, required")
    words.add_argument("--questions", type=int, help="only the first so many")
    words.add_argument("--at-once", type=int, default=64)
    words.add_argument("--max-tokens", type=int, default=data.CALL_TOKENS, help="of an answer")
    words.add_argument("--out", type=Path, help="a file for all answers, as lines of JSON")
    given = words.parse_args()
    modes = given.modes.split(",")
    if unknown := set(modes) - set(MODES):
        words.error(f"--modes: there is no {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")
    try:
        faulty = run(given, modes)
    except OnechipError as error:
        raise SystemExit(f"{error}") from None
    raise SystemExit(1 if faulty else 0)


if __name__ == "__main__":
    main()
