"""The traps of answers to word problems: what each scorer reads, and the headline's verdict."""

from __future__ import annotations

import pytest

from onechip.ladder.scoring.gsm8k import expected_answer, score


@pytest.mark.parametrize(
    ("text", "expected", "strict", "flexible", "right"),
    [
        ("9 * 2 = 18\n#### 18", "18", "18", "18", True),
        ("#### 18.00", "18", "18.00", "18.00", True),
        ("#### 1,234", "1234", "1234", "1234", True),
        ("She makes $18.00.", "18", None, "18.00", True),
        ("It is $18.", "18", None, "18", True),
        ("18 dollars... done", "18", None, "18", True),
        ("The answer is **18**.", "18", None, "18", True),
        ("#### **18**", "18", None, "18", True),
        ("#### $18", "18", None, "18", True),
        ("#### 18\nCheck: 16 - 7 = 9", "18", "18", "9", True),
        ("#### 17\n#### 18", "18", "17", "18", False),
        ("16 - 3 = 13", "13", None, "13", True),
        ("from 10-12", "12", None, "12", True),
        ("#### -5", "-5", "-5", "-5", True),
        ("It is \N{MINUS SIGN}5 degrees", "-5", None, "-5", True),
        ("costs $1,000,000", "1000000", None, "1000000", True),
        (".5 of it", "0.5", None, ".5", True),
        ("no idea", "18", None, None, False),
        ("", "18", None, None, False),
        ("####", "18", None, None, False),
    ],
)
def test_traps(text: str, expected: str, strict: str | None, flexible: str | None, right: bool) -> None:
    answers, scores = score(text, expected)
    assert (answers["strict"], answers["flexible"], scores["numeric"]) == (strict, flexible, right)
    assert scores["strict"] == (strict == expected)
    assert scores["flexible"] == (flexible == expected)


def test_reference_answers() -> None:
    assert expected_answer("9 * 2 = <<9*2=18>>18\n#### 18") == "18"
    assert expected_answer("... #### 70,000") == "70000"
    with pytest.raises(ValueError, match="no '#### number'"):
        expected_answer("18")
