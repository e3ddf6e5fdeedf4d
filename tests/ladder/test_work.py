"""Groups of arms that were given the same work, and the sentences that name them."""

from __future__ import annotations

from itertools import combinations

from onechip.ladder.figures import Place
from onechip.ladder.records import Cell, CellRecord, JobName
from onechip.ladder.work import groups, sentences

SWEEP = Place("sweep", "64/32", 8)


def cell(arm: str, definition: str, job: JobName = "sweep", variant: str = "64/32") -> CellRecord:
    return CellRecord(Cell(arm, job, variant, 8, 0, definition), "2026-11-30T10:00:00Z")


def test_arms_with_one_definition_are_one_group() -> None:
    records = [cell(arm, work) for arm, work in zip("abcde", "xyxzy", strict=True)]
    assert groups(records) == {SWEEP: (("a", "c"), ("b", "e"), ("d",))}


def test_blocks_that_not_all_have_reached_are_no_other_work() -> None:
    blocks = {"a": "123", "b": "1", "c": "23", "d": "9"}
    records = [cell(arm, block, "acc", "gsm8k") for arm, reached in blocks.items() for block in reached]
    assert groups(records) == {Place("acc", "gsm8k", 8): (("a", "b", "c"), ("d",))}


def test_every_start_is_its_own_and_says_nothing() -> None:
    assert groups([cell("a", "x", "start", "cold"), cell("b", "y", "start", "cold")]) == {}


def test_a_job_of_many_arms_is_told_in_one_sentence() -> None:
    arms = [f"arm {number}" for number in range(9)]
    (told,) = sentences(groups([cell(arm, arm) for arm in arms]), {})
    assert told.startswith("Job sweep: 9 kinds of work, as prompts, lengths or limits differ: arm 0; arm 1; ")
    assert not any(f"{one} and {other}" in told for one, other in combinations(arms, 2))


def test_the_same_work_for_all_is_not_told() -> None:
    assert list(sentences(groups([cell("a", "x"), cell("b", "x")]), {})) == []


def test_what_sets_the_kinds_apart_is_read_from_the_probes() -> None:
    ids, chat = ({"fixed": "ignore_eos", "prompts": way} for way in ("ids", "chat"))
    found = {SWEEP: (("a", "b"), ("c",))}
    (told,) = sentences(found, {"a": ids, "b": ids, "c": chat})
    assert told.startswith(
        "Job sweep: 2 kinds of work: a and b (prompts as token ids); c (prompts as chat messages). "
    )
    (same,) = sentences(found, {"a": chat, "b": chat, "c": chat})
    assert same.startswith("Job sweep: 2 kinds of work, as prompts, lengths or limits differ: a and b; c. ")


def test_each_job_is_told_of_by_what_bears_on_it() -> None:
    held = {"fixed": "ignore_eos", "prompts": "ids", "thinking_off": True, "context": 2048}
    free = {"fixed": None, "prompts": "chat", "thinking_off": False, "context": 512}
    found = {Place("one", "alone", 1): (("a",), ("b",)), Place("acc", "gsm8k", 1): (("a",), ("b",))}
    one, acc = sentences(found, {"a": held, "b": free})
    assert "a (held to the length); b (not held to a length)." in one
    assert "a (thinking switched off, context of 2,048 tokens); b (no switch for thinking, context of" in acc


def test_variants_that_differ_in_who_got_what_are_named() -> None:
    found = {Place("acc", "gsm8k", 1): (("a",), ("b",)), Place("acc", "bfcl", 1): (("a", "b"),)}
    (told,) = sentences(found, {})
    assert told.startswith("Job acc (gsm8k): 2 kinds of work")
