"""A summary holds what was planted, and verdicts only where they are established."""

from __future__ import annotations

import msgspec
import pytest

from onechip.ladder import figures, medals, stats
from onechip.ladder.figures import Place
from onechip.ladder.medals import Court, Entry, Evidence, Row, Verdict, award
from onechip.ladder.records import CellRecord
from onechip.ladder.report import wording
from onechip.ladder.summary import Summary, summarise
from tests.ladder.made_ladder import MadeLadder, request

RIGHT = {"slow": frozenset(range(150)), "fast": frozenset(range(20, 150))}


@pytest.fixture(scope="module")
def summary() -> Summary:
    made = MadeLadder({"slow": 60.0, "fast": 78.0}, RIGHT)
    return summarise(made.manifest(), made.records())


def row(summary: Summary, label: str) -> Row:
    return next(row for row in summary.rows if row.label == label)


def measured(summary: Summary, arm: str, place: Place, figure: str) -> figures.Measure:
    return next(m for m in summary.measures if (m.arm, m.place, m.figure) == (arm, place, figure))


def test_one_request_is_the_geometric_mean_of_each_prompts_median():
    made = MadeLadder({"a": 1.0})
    speeds = [[10.0, 40.0], [20.0, 50.0], [90.0, 60.0]]  # three repeats of two prompts: medians 20 and 50
    records = []
    for repeat, pair in enumerate(speeds):
        record = made.cell("a", "one", "alone", 1, repeat)
        record.requests = [request(i, 11, tok_s) for i, tok_s in enumerate(pair)]
        records.append(record)
    found = next(repeats for repeats in figures.alone_figures(records) if repeats.figure == "decode_tok_s")
    assert found.headline == pytest.approx((20 * 50) ** 0.5)
    assert found.values == pytest.approx([(10 * 40) ** 0.5, (20 * 50) ** 0.5, (90 * 60) ** 0.5])


def test_a_prompt_without_a_decode_speed_leaves_its_repeat_out():
    made = MadeLadder({"a": 1.0})
    whole, torn = (made.cell("a", "one", "alone", 1, repeat) for repeat in (0, 1))
    whole.requests = [request(0, 11, 30.0), request(1, 11, 30.0)]
    torn.requests = [request(0, 11, 30.0), request(1, 1, 30.0)]  # one event: no decode speed
    found = {repeats.figure: repeats for repeats in figures.alone_figures([whole, torn])}
    assert found["decode_tok_s"].values == pytest.approx([30.0])
    assert len(found["ttft_ms"].values) == 2


def test_the_unit_of_throughput_is_a_repeat(summary: Summary):
    found = measured(summary, "slow", Place("sweep", "512/128", 64), "whole_batch_tok_s")
    assert found.spread.n == len(found.values) == 6
    assert found.headline == found.spread.median


def test_two_aggregate_speeds_are_kept(summary: Summary):
    place = Place("sweep", "512/128", 8)
    kept = {m.figure for m in summary.measures if m.place == place and m.arm == "slow"}
    assert {"whole_batch_tok_s", "full_window_tok_s", "ttft_ms", "inter_token_ms"} <= kept


def test_percentiles_need_enough_samples(summary: Summary):
    at = {(found.place.level, found.figure): found for found in summary.latencies if found.arm == "slow"}
    few, many = at[1, "ttft_ms"], at[64, "ttft_ms"]
    assert (few.n, few.p95, few.p99) == (6, None, None)
    assert many.n == 6 * 64
    assert many.p99 is not None
    assert many.p99 > many.p50


def test_an_established_difference_gets_the_medal(summary: Summary):
    decode = row(summary, "One request, decode")
    assert (decode.verdict.outcome, decode.verdict.leader) == ("medal", "fast")
    ratio = summary.ratio(decode.place, decode.figure, "fast", "slow")
    assert ratio is not None
    assert ratio.interval is not None
    assert ratio.interval.holds(78 / 60)


def test_one_start_is_no_claim(summary: Summary):
    assert row(summary, "Start, cold cache").verdict.outcome == "too few repeats"


def _verdict(
    values: dict[str, float], enough: dict[tuple[str, str], bool], work: dict[str, int] | None = None
) -> Verdict:
    """Of a row of speeds in which every pair that has enough repeats is far apart."""

    class Far(Court):
        def evidence(self, row: Row, a: str, b: str) -> Evidence:
            return Evidence(enough.get((a, b), True), True, 0.001)

    entries = tuple(Entry(arm, value, 6, work=(work or {}).get(arm, 0)) for arm, value in values.items())
    place = Place("one", "alone", 1)
    rows = [Row(place, "decode", "decode", "tok/s", "higher", "speed", entries)]
    return award(rows, Far((), ()))[0].verdict


def test_an_arm_behind_with_too_few_repeats_is_named_and_takes_no_medal_away():
    values = {"a": 30.0, "b": 20.0, "c": 10.0}
    verdict = _verdict(values, {("a", "b"): False})
    assert (verdict.outcome, verdict.leader, verdict.runner_up) == ("medal", "a", "c")
    assert verdict.aside == ("b",)


def test_a_leader_with_too_few_repeats_gets_no_medal():
    values = {"a": 30.0, "b": 20.0, "c": 10.0}
    verdict = _verdict(values, {("a", "b"): False, ("a", "c"): False})
    assert (verdict.outcome, verdict.leader) == ("too few repeats", "a")


def test_only_arms_with_the_same_work_are_compared():
    values = {"a": 40.0, "b": 30.0, "c": 20.0, "d": 10.0}
    verdict = _verdict(values, {("c", "d"): False}, {"a": 1})
    assert (verdict.outcome, verdict.leader, verdict.runner_up) == ("medal", "b", "c")
    assert verdict.unlike == ("a",)
    pairs = _verdict(values, {}, {"a": 2, "b": 1, "c": 2, "d": 1})
    assert (pairs.leader, pairs.runner_up, pairs.unlike) == ("a", "c", ("b", "d"))


def test_without_two_arms_of_one_work_there_is_no_contest():
    verdict = _verdict({"a": 20.0, "b": 30.0, "c": 10.0}, {}, {"a": 0, "b": 1, "c": 2})
    assert verdict == Verdict("no contest", "b", unlike=("a", "c"))


def test_an_arm_with_other_work_wins_no_row_but_those_of_its_start():
    made = MadeLadder({"slow": 60.0, "fast": 78.0, "other": 99.0}, work={"other": "longer prompts"})
    rows = summarise(made.manifest(), made.records()).rows
    assert {row.verdict.leader for row in rows if row.verdict.outcome == "medal"} == {"fast"}
    apart = [row for row in rows if row.place.job != "start"]
    assert len(apart) > 5
    assert all(row.verdict.unlike == ("other",) for row in apart)
    assert not any(row.verdict.unlike for row in rows if row.place.job == "start")


def test_equal_counts_are_a_tie_and_equal_waits_are_not_separated(summary: Summary):
    assert row(summary, "Repeats its own text").verdict.outcome == "tie"
    assert row(summary, "One request, first token").verdict.outcome == "not separated"


def test_accuracy_is_paired_with_the_first_arm(summary: Summary):
    (pair,) = summary.pairs
    assert (pair.a, pair.b) == ("fast", "slow")
    assert (pair.paired.only_a, pair.paired.only_b) == (0, 20)
    assert pair.holm_p == pair.paired.p == pytest.approx(2 * 0.5**20)
    assert [flip.question for flip in pair.flips] == [f"q{i}" for i in range(20)]
    assert {flip.rights for flip in pair.flips} == {(False, True)}
    assert row(summary, "Accuracy, acorn-problems").verdict.leader == "slow"


def test_scores_count_unreadable_and_each_scorer(summary: Summary):
    score = next(s for s in summary.scores if s.arm == "slow")
    assert (score.n, score.right, score.scorers) == (200, 150, {"numeric": 150, "strict": 0})
    assert score.unparsed == score.truncated == 0


def test_blocks_are_told(summary: Summary):
    assert summary.one_block
    made = MadeLadder({"a": 50.0, "b": 50.0}, repeats=2)
    by_arm = {arm: [r for r in made.records() if r.cell.arm == arm] for arm in ("a", "b")}
    mixed = [record for pair in zip(by_arm["a"], by_arm["b"], strict=True) for record in pair]
    assert not summarise(made.manifest(), mixed).one_block


def test_an_invalid_cell_is_listed_and_in_no_figure():
    made = MadeLadder({"a": 50.0, "b": 50.0})
    records = made.records()
    place = Place("sweep", "512/128", 8)
    spoilt = next(r for r in records if r.cell.arm == "a" and place_of(r) == place and r.cell.repeat == 2)
    spoilt.requests = [request(0, 24, 1e6)]
    spoilt.invalid = ["Request 0 has 24 output tokens; 128 were asked."]
    found = summarise(made.manifest(), records)
    assert measured(found, "a", place, "whole_batch_tok_s").spread.n == 5
    assert [(cell.place, cell.repeat, cell.reasons) for cell in found.invalid] == [
        (place, 2, tuple(spoilt.invalid))
    ]


def test_a_place_with_invalid_cells_only_is_shown_as_such():
    made = MadeLadder({"a": 50.0, "b": 50.0})
    records = made.records()
    for record in records:
        if record.cell.arm == "a" and place_of(record) == Place("sweep", "512/128", 64):
            record.invalid = ["The engine died."]
    found = row(summarise(made.manifest(), records), "64 requests, 512 in, 128 out")
    assert [(entry.value is None, entry.remark) for entry in found.entries] == [
        (True, "invalid"),
        (False, ""),
    ]
    assert found.verdict.outcome == "no contest"


def test_questions_of_an_invalid_block_are_not_paired():
    made = MadeLadder({"slow": 60.0, "fast": 78.0}, RIGHT)
    records = [record for record in made.records() if record.cell.job == "acc"]
    block = msgspec.structs.replace(
        records[1], requests=records[1].requests[:50], invalid=["A request failed."]
    )
    records[1].requests = records[1].requests[50:]
    (pair,) = summarise(made.manifest(), [*records, block]).pairs
    assert pair.paired.n == 150
    assert pair.flips == ()


def test_different_work_is_told():
    same, other = (
        MadeLadder({"a": 50.0, "b": 50.0}, repeats=1, work=work) for work in ({}, {"b": "longer prompts"})
    )
    assert summarise(same.manifest(), same.records()).uneven == ()
    _one, told, _acc = summarise(other.manifest(), other.records()).uneven
    assert told.startswith("Job sweep: 2 kinds of work, as prompts, lengths or limits differ: a; b.")


def test_an_arm_against_itself_wins_nothing():
    for seed in range(10):
        made = MadeLadder({"a": 60.0, "b": 60.0}, noise=0.03, seed=seed)
        records = [r for r in made.records() if r.cell.job == "acc" or r.cell.level == 1]
        assert not [r.label for r in summarise(made.manifest(), records).rows if r.verdict.outcome == "medal"]


def alternating(pairs: int) -> Summary:
    """Arms a and b, planted at 100 and 110 tok/s, in A B B A blocks on a machine that slows down by 20 %."""
    made, records = MadeLadder({"a": 1.0, "b": 1.0}), []
    for block in range(1, 2 * pairs + 1):
        arm = "abba"[(block - 1) % 4]
        speed = {"a": 100.0, "b": 110.0}[arm] * (1 - 0.1 * block / pairs)
        record = made.cell(arm, "one", "alone", 1, (block - 1) // 2)
        record.cell = msgspec.structs.replace(record.cell, block=block)
        record.requests = [request(0, 21, speed * (1 + 0.001 * (block % 3)))]
        records.append(record)
    return summarise(made.manifest(), records)


def test_arms_that_alternated_are_compared_by_pairs_of_blocks():
    found = alternating(12)
    decode = row(found, "One request, decode")
    ratio = found.ratio(decode.place, decode.figure, "b", "a")
    assert ratio is not None
    assert (ratio.blocks, ratio.n_a, ratio.n_b) == (True, 12, 12)
    assert ratio.ratio == pytest.approx(1.1, abs=0.002)
    assert ratio.p is not None
    assert ratio.p < 1e-9
    assert decode.verdict.leader == "b"


def test_too_few_pairs_of_blocks_are_called_so():
    found = alternating(4)
    decode = row(found, "One request, decode")
    assert decode.verdict.outcome == "too few repeats"
    assert wording.verdict(found, decode) == "no claim: 4 of 6 pairs of blocks"
    assert wording.brief(found, decode) == "no claim (4 of 6)"


def test_holm_takes_a_medal_away_but_leaves_the_interval():
    entries = (medals.Entry("a", 2.0, 6), medals.Entry("b", 1.0, 6))
    ratio = stats.Ratio(6, 6, 2.0, 2.0, stats.Interval(1.1, 3.0), stats.Interval(1.2, 3.0), 0.02)
    places = [Place("sweep", "512/128", level) for level in (1, 2, 4)]
    rows = [Row(place, "whole_batch_tok_s", "", "tok/s", "higher", "speed", entries) for place in places]
    contrasts = [figures.Contrast(place, "whole_batch_tok_s", "a", "b", ratio) for place in places]
    one = medals.award(rows[:1], medals.Court(contrasts, []))
    three = medals.award(rows, medals.Court(contrasts, []))
    assert one[0].verdict == Verdict("medal", "a", "b", p=0.02, adjusted_p=0.02)
    assert [row.verdict for row in three] == [
        Verdict("not separated", "a", "b", p=0.02, adjusted_p=pytest.approx(0.06))
    ] * 3


def test_a_leader_must_beat_every_arm():
    made = MadeLadder({"a": 80.0, "b": 80.0, "c": 40.0})
    records = [record for record in made.records() if record.cell.job == "one"]
    verdict = row(summarise(made.manifest(), records), "One request, decode").verdict
    assert verdict.outcome == "not separated"
    assert {verdict.leader, *verdict.rivals} == {"a", "b"}


def test_the_summary_survives_json(summary: Summary):
    assert msgspec.json.decode(msgspec.json.encode(summary), type=Summary) == summary


def test_a_ladder_without_cells_has_an_empty_summary():
    made = MadeLadder({"a": 50.0})
    found = summarise(made.manifest(), [])
    assert (found.cells, found.rows, found.arms) == (0, (), ("a",))


def place_of(record: CellRecord) -> Place:
    return Place(record.cell.job, record.cell.variant, record.cell.level)


def test_memory_of_starts_that_all_failed_is_no_row():
    made = MadeLadder({"a": 60.0, "b": 50.0})
    records = [record for record in made.records() if record.cell.job == "start"]
    for record in records:
        record.measured, record.invalid = {}, ["It did not come up."]
    assert [row.label for row in summarise(made.manifest(), records).rows] == [
        "Start, cold cache",
        "Start, warm cache",
    ]
