"""Answers to word problems: raw text in, what each of three scorers reads and whether it is right out.

strict: the number behind the first `####`. flexible: the last number. numeric, the headline: strict's
    reading, else
flexible's, compared as numbers ("18.00" is 18).
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

VERSION = 1
HEADLINE = "numeric"

_NUMBER = r"(?<![\w.,])-?\$?-?(?:\d[\d,]*(?:\.\d+)?|\.\d+)"
_STRICT = re.compile(r"####\s*(-?\d[\d,]*(?:\.\d+)?)")
_FLEXIBLE = re.compile(_NUMBER)


def expected_answer(solution: str) -> str:
    """The number behind `####` in a reference solution.

    Raises:
        ValueError: there is none.
    """
    match = _STRICT.search(solution)
    if match is None:
        raise ValueError(f"the reference solution has no '#### number': {solution[-80:]!r}")
    return _plain(match.group(1))


def read_answers(text: str) -> dict[str, str | None]:
    """What each scorer reads; None where it finds no number."""
    text = text.replace("\N{MINUS SIGN}", "-")
    strict = _STRICT.search(text)
    numbers = _FLEXIBLE.findall(text)
    answers = {
        "strict": _plain(strict.group(1)) if strict else None,
        "flexible": _plain(numbers[-1]) if numbers else None,
    }
    return answers | {"numeric": answers["strict"] or answers["flexible"]}


def score(text: str, expected: str) -> tuple[dict[str, str | None], dict[str, bool]]:
    """Answers and verdicts by scorer; strict and flexible compare as strings, numeric as numbers."""
    answers = read_answers(text)
    scores = {name: answer == expected for name, answer in answers.items()}
    scores[HEADLINE] = _same_number(answers[HEADLINE], expected)
    return answers, scores


def _plain(number: str) -> str:
    return number.replace(",", "").replace("$", "")


def _same_number(answer: str | None, expected: str) -> bool:
    try:
        return answer is not None and Decimal(answer) == Decimal(expected)
    except InvalidOperation:
        return False
