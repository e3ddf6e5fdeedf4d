"""Prompts have exactly the length asked for, are unique, and are the same for every arm."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from onechip.convert.synth import synthesise
from onechip.errors import LadderError
from onechip.ladder import prompts
from onechip.ladder.checkpoint import TokenCounter
from onechip.models.source import resolve_model

CHAT_EXTRA = 9


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    found = TokenCounter.load(resolve_model("acorn"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def ids(counter: TokenCounter) -> prompts.Recipe:
    return prompts.with_ids(prompts.calibrate("ids", lambda text: len(counter.encode(text))), counter.encode)


def chat_length(counter: TokenCounter, text: str) -> int:
    """As an engine counts whose template adds nine tokens."""
    return counter.count(text) + CHAT_EXTRA


def test_token_ids_have_the_length_and_begin_with_one_bos(ids: prompts.Recipe, counter: TokenCounter) -> None:
    for length in (8, 128, 512):
        made = prompts.make(ids, length, "1/a")
        assert made.path == "/v1/completions"
        assert len(made.fields["prompt"]) == length == made.tokens
        assert made.fields["prompt"].count(counter.bos[0]) == 1
        assert made.fields["prompt"][0] == counter.bos[0]


def test_text_has_the_length_after_the_template(counter: TokenCounter) -> None:
    for way in ("text", "chat"):
        recipe = prompts.calibrate(way, lambda text: chat_length(counter, text))  # type: ignore[arg-type]
        for key in range(20):
            made = prompts.make(recipe, 100, str(key))
            text = made.fields["prompt"] if way == "text" else made.fields["messages"][0]["content"]
            assert chat_length(counter, text) == 100


def test_the_ways_say_the_same_words(ids: prompts.Recipe, counter: TokenCounter) -> None:
    text = prompts.calibrate("text", lambda text: len(counter.encode(text)))
    said = prompts.make(text, 64, "1/x").fields["prompt"]
    assert counter.encode(said) == prompts.make(ids, 64, "1/x").fields["prompt"]


def test_the_same_key_gives_the_same_prompt_and_another_key_another(ids: prompts.Recipe) -> None:
    assert prompts.make(ids, 64, "1/a") == prompts.make(ids, 64, "1/a")
    firsts = {tuple(prompts.make(ids, 64, f"1/{n}").fields["prompt"][ids.overhead : 16]) for n in range(500)}
    assert len(firsts) == 500


def test_no_pair_shares_a_block(ids: prompts.Recipe) -> None:
    made = [
        prompts.make(ids, 32, f"1/512/128/64/{n}/{m}").fields["prompt"] for n in range(6) for m in range(64)
    ]
    made.sort()
    shared = max(_common(a, b) for a, b in pairwise(made))
    assert shared < ids.overhead + 5


def test_first_blocks_of_a_whole_ladder_are_unique_even_of_few_words() -> None:
    """Every cell of twelve repeats at seven levels, from sixteen letters; a block is 16 tokens."""
    letters = prompts.Recipe("text", tuple("abcdefghijklmnop"), 1)
    keys = (
        f"1/24/8/{level}/{repeat}/{index}"
        for level in (1, 2, 4, 8, 16, 32, 64)
        for repeat in range(12)
        for index in range(3 * level)
    )
    firsts = [prompts.make(letters, 16, key).fields["prompt"] for key in keys]
    assert len(set(firsts)) == len(firsts) > 4_000


def _common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def test_a_prompt_shorter_than_the_template_is_refused(ids: prompts.Recipe) -> None:
    with pytest.raises(LadderError, match="A prompt of 2 tokens has no room"):
        prompts.make(ids, 2, "x")


def test_a_tokenizer_without_whole_words_is_refused() -> None:
    with pytest.raises(LadderError, match="Only 0 of"):
        prompts.calibrate("text", len)


def test_hashes(ids: prompts.Recipe) -> None:
    assert prompts.make(ids, 64, "a").sha256 != prompts.make(ids, 64, "b").sha256
    assert len(ids.sha256) == 64


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    assert TokenCounter.load(tmp_path) is None


def test_texts_of_random_weights_are_not_counted(tmp_path: Path) -> None:
    synthesise(tmp_path / "random", "tiny", "bf16")
    made = TokenCounter.load(tmp_path / "random")
    acorn = TokenCounter.load(resolve_model("acorn"))
    assert made is not None
    assert acorn is not None
    assert (made.noise, acorn.noise) == (True, False)


def test_a_tokenizer_without_words_gives_its_letters() -> None:
    """As a synthetic checkpoint's, whose merges make no word whole."""

    def count(text: str) -> int:
        return sum(len(word) for word in text.split(" ")) - 1

    assert prompts.calibrate("text", count).words == tuple("abcdefghijklmnopqrstuvwxyz")
