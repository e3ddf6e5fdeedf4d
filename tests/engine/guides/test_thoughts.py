"""Thoughts end within their budget, with a sentence if there is one, and guides wait for their end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import onechip.models
from onechip.engine.guides.masks import Mask, has, keep_only
from onechip.engine.guides.thoughts import AfterThought, ThoughtBudget
from onechip.engine.types import Guide
from onechip.models.chat_parser import ChatParser, Reasoning, Text, ThoughtMarkers, open_thought
from onechip.models.tokenizer import Tokenizer

TOKENIZER = Tokenizer.load(Path(onechip.models.__file__).parent / "acorn", [1])
MARKERS = ThoughtMarkers.of(TOKENIZER, calls=True)
assert MARKERS is not None
END = 1
OPENING = "<|turn>model\n<|channel>thought\n"


def everything() -> Mask:
    return np.full(-(-TOKENIZER.vocab_size // 32), 0xFFFFFFFF, np.uint32)


def written(guides: Sequence[Guide], wish: str | Sequence[int]) -> list[int]:
    """What a model writes that wants to write `wish`: one token after the other, or else the first allowed.

    A token that is not allowed is left out.
    """
    wanted = TOKENIZER.encode(wish) if isinstance(wish, str) else list(wish)
    answer: list[int] = []
    while wanted:
        allowed = everything()
        for guide in guides:
            guide.forbid(allowed)
        ids = [id for id in range(TOKENIZER.vocab_size) if has(allowed, id)]
        assert ids
        token = wanted.pop(0)
        if not has(allowed, token):
            if len(ids) > 1:
                continue
            token = ids[0]
        answer.append(token)
        for guide in guides:
            guide.take(token)
    return answer


def parts(answer: Sequence[int], prompt: str = "") -> tuple[str, str, int]:
    """Thoughts, text, and how many tokens are thoughts, as the server reads them."""
    parser = ChatParser(TOKENIZER, (), TOKENIZER.encode(prompt))
    deltas = [*parser.push(answer), *parser.finish()]
    thoughts = "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
    return thoughts, "".join(d.text for d in deltas if isinstance(d, Text)), parser.reasoning_tokens


def budget(tokens: int, opened: bool = False) -> ThoughtBudget:
    return ThoughtBudget(TOKENIZER, MARKERS, tokens, opened)


WORDS = " there are so many boxes and so many cards in all of them"


@pytest.mark.parametrize("tokens", range(12))
@pytest.mark.parametrize("opened", [False, True])
def test_thoughts_have_no_more_tokens_than_the_budget(tokens: int, opened: bool) -> None:
    start = "" if opened else "<|channel>thought\n"
    answer = written([budget(tokens, opened)], start + WORDS * 3)
    thoughts, text, count = parts(answer, OPENING if opened else "")
    assert count <= tokens
    assert answer.count(MARKERS.close) == (tokens > 0 or opened)
    assert thoughts in f"thought\n{WORDS * 3}"
    assert text.endswith(WORDS)
    if tokens > 6:
        assert thoughts
        assert count == tokens


def test_a_thought_within_its_budget_is_left_alone() -> None:
    ids = TOKENIZER.encode("<|channel>thought\nHm. Yes.\n<channel|>So 7.")
    assert written([budget(1000)], ids) == ids


def test_a_sentence_ends_the_thoughts_near_the_end_of_the_budget() -> None:
    sentence = "There are 3.5 boxes in all of them. "
    ids = len(TOKENIZER.encode("thought\n" + sentence))
    answer = written([budget(ids + 3)], "<|channel>thought\n" + sentence + WORDS)
    thoughts, _, count = parts(answer)
    assert thoughts.strip() == sentence.strip()
    assert count < ids + 3
    far = written([budget(ids * 9)], "<|channel>thought\n" + sentence + WORDS)
    assert MARKERS.close not in far


def test_a_line_ends_them_without_another_newline() -> None:
    line = "There are boxes here\n"
    ids = len(TOKENIZER.encode("thought\n" + line))
    answer = written([budget(ids + 2)], "<|channel>thought\n" + line + WORDS)
    end = answer.index(MARKERS.close)
    assert TOKENIZER.decode(answer[:end]) == f"thought\n{line}"


def test_a_spent_budget_opens_no_thoughts() -> None:
    assert written([budget(0)], [MARKERS.open]) == []
    answer = written([budget(5)], "<|channel>thought\n" + WORDS)
    assert MARKERS.close in answer
    again = written([budget(5)], [*answer, MARKERS.open])
    assert again[-1] != MARKERS.open


def test_what_is_left_of_a_budget_is_for_further_thoughts() -> None:
    first = "<|channel>thought\nHm\n<channel|>"
    spent = parts(TOKENIZER.encode(first))[2]
    answer = written([budget(spent + 6)], first + first + WORDS + "<|channel>thought\n" + WORDS)
    assert parts(answer)[2] <= spent + 6


def test_an_opened_thought_counts_from_the_start() -> None:
    assert written([budget(0, opened=True)], WORDS)[0] == MARKERS.close


class Only:
    """Allows `ids`, one after the other, and then the end of the answer."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)

    def forbid(self, allowed: Mask) -> None:
        keep_only(allowed, self.ids[0] if self.ids else END)

    def take(self, token: int) -> None:
        assert token == (self.ids.pop(0) if self.ids else END)


def test_a_guide_is_for_what_comes_after_the_thoughts() -> None:
    end = TOKENIZER.encode("So 7.")
    thought = TOKENIZER.encode("<|channel>thought\nHm.\n<channel|>")
    after = written([AfterThought(Only(end), MARKERS, opened=False)], [*thought, *[5] * len(end)])
    assert after == [*thought, *end]
    assert written([AfterThought(Only(end), MARKERS, opened=False)], end) == end
    opened = written([AfterThought(Only(end), MARKERS, opened=True)], [*thought[1:], *[5] * len(end)])
    assert opened == [*thought[1:], *end]


def test_thoughts_are_closed_before_the_answer_goes_on() -> None:
    """No marker may end them without closing them: the guide would miss a part of the answer."""
    ids = [*sorted(MARKERS.breaks), MARKERS.open]
    assert written([AfterThought(Only([5]), MARKERS, opened=True)], ids) == []


def test_a_budget_and_a_guide_together() -> None:
    end = TOKENIZER.encode("So 7.")
    rng = random.Random(1)
    for tokens in range(8):
        guides = [budget(tokens), AfterThought(Only(end), MARKERS, opened=False)]
        wish = [MARKERS.open, *(rng.randrange(300, 600) for _ in range(20)), MARKERS.close]
        answer = written(guides, wish)
        thoughts = answer.index(MARKERS.close) + 1 if MARKERS.close in answer else 0
        assert thoughts - 2 <= tokens
        assert [id for id in answer[thoughts:] if id != END] == end


def test_where_a_prompt_stands() -> None:
    for prompt, inside in [(OPENING, "thought\n"), (f"{OPENING}Hm\n<channel|>", None), ("Hi", None)]:
        ids = open_thought(TOKENIZER, TOKENIZER.encode(prompt))
        assert (None if ids is None else TOKENIZER.decode(ids)) == inside


def marked() -> ThoughtMarkers:
    """Markers of which answers may speak, as the tokens `<think>` and `</think>` are."""
    assert MARKERS is not None
    return ThoughtMarkers(MARKERS.open, MARKERS.close, frozenset({END}), first=True)


def test_a_marker_behind_the_first_word_is_text() -> None:
    """It opens no thoughts there: what follows it is not counted, and a spent budget does not forbid it."""
    start = TOKENIZER.encode("\n")  # blanks are no word
    thought = [MARKERS.open, *TOKENIZER.encode("Hm\n"), MARKERS.close]
    mention = [*TOKENIZER.encode("\nSo:"), MARKERS.open, *TOKENIZER.encode(WORDS * 2)]
    for tokens in (len(thought) - 2, 100):
        guide = ThoughtBudget(TOKENIZER, marked(), tokens, opened=False)
        assert written([guide], [*start, *thought, *mention]) == [*start, *thought, *mention]
    spent = ThoughtBudget(TOKENIZER, marked(), len(thought) - 2, opened=False)
    assert written([spent], [*thought, *start, *thought]) == [*thought, *start, *thought[1:]]
    assert written([ThoughtBudget(TOKENIZER, marked(), 0, opened=True)], WORDS)[0] == MARKERS.close
