"""Statistics against published examples and scipy's own; planted truths are in test_simulations.py."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from onechip.ladder import stats


def test_mcnemar_agrees_with_armitage_and_berry():
    # Armitage and Berry (1994), p. 127: two culture media, 12 and 2 specimens grew on one medium only.
    assert stats.mcnemar(12, 2) == pytest.approx(0.0129, abs=5e-5)
    assert stats.mcnemar(2, 12) == stats.mcnemar(12, 2)


def test_mcnemar_agrees_with_exact2x2_on_agresti_s_table():
    # Agresti (2002), table 10.1, approval of a prime minister: 150 and 86 changed their minds. The p is of
    # the R package exact2x2 (Fay 2010), which has this table as its example.
    assert stats.mcnemar(150, 86) == pytest.approx(3.716e-05, abs=5e-9)


def test_mcnemar_without_flips_is_one():
    assert stats.mcnemar(0, 0) == 1.0


def test_five_flips_of_one_kind_are_not_significant_and_six_are():
    assert stats.mcnemar(5, 0) > 0.05 > stats.mcnemar(6, 0)


def test_holm_agrees_with_the_textbook_example():
    # Wikipedia, "Holm-Bonferroni method": of these four, the first and the last are rejected at 0.05.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_holm_is_the_closure_of_bonferroni(p):
    """Marcus, Peritz and Gabriel (1976): reject what every intersection with it rejects."""
    families = [chosen for size in range(1, len(p) + 1) for chosen in combinations(range(len(p)), size)]
    closed = [
        max(min(1.0, len(chosen) * min(p[j] for j in chosen)) for chosen in families if i in chosen)
        for i in range(len(p))
    ]
    assert stats.holm(p) == pytest.approx(closed)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_raw_p_and_bonferroni(p):
    for raw, adjusted in zip(p, stats.holm(p), strict=True):
        assert raw <= adjusted <= 1
    assert min(stats.holm(p)) == min(1.0, len(p) * min(p))


def test_the_table_of_a_paired_comparison():
    a = [True, True, True, False, False, True]
    b = [True, False, False, True, False, True]
    found = stats.compare_paired(a, b)
    assert (found.both, found.only_a, found.only_b, found.neither) == (2, 2, 1, 1)
    assert (found.score_a, found.score_b) == (4 / 6, 3 / 6)
    assert found.difference == pytest.approx(1 / 6)


@pytest.mark.parametrize(("a", "b"), [([True], [True, False]), ([], [])])
def test_answers_that_do_not_pair_are_refused(a, b):
    with pytest.raises(ValueError, match="paired answers"):
        stats.compare_paired(a, b)


def test_resampled_counts_agree_with_scipys_bootstrap_of_questions():
    difference = np.array([1.0] * 30 + [-1.0] * 12 + [0.0] * 258)
    theirs = scipy_stats.bootstrap(
        (difference,), np.mean, n_resamples=20_000, method="percentile", batch=1_000, rng=1
    ).confidence_interval
    ours = stats.bootstrap_difference(30, 12, 300)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1 / 300)


def test_no_flip_in_few_questions_is_not_called_level():
    # The bootstrap alone says 0 to 0 here; at a true rate of flips of 3 %, one set of 100 in 21 shows none.
    hundred = stats.compare_paired([True] * 100, [True] * 100)
    assert (hundred.interval.low, hundred.interval.high) == (0, 0)
    assert not hundred.level
    assert stats.compare_paired([True] * 1319, [True] * 1319).level


def test_an_interval_that_touches_the_margin_is_not_level():
    assert not stats.Interval(-0.01, 0.02).inside(0.02)
    assert stats.Interval(-0.01, 0.0199).inside(0.02)


def test_describe_gives_the_plain_figures():
    found = stats.describe([100.0, 110.0, 121.0])
    assert (found.n, found.minimum, found.median, found.maximum) == (3, 100, 110, 121)
    assert found.spread == pytest.approx(0.21)
    assert found.mean == pytest.approx(110)


def test_one_repeat_has_no_interval():
    found = stats.describe([5.0])
    assert found.interval is None
    assert found.bootstrap is None
    assert found.unstable == ()


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [1.0, -1.0], [math.nan], [math.inf]])
def test_figures_that_have_no_logarithm_are_refused(values):
    with pytest.raises(ValueError, match="positive finite"):
        stats.describe(values)


def test_a_wide_figure_is_unstable_and_a_narrow_one_is_not():
    assert stats.describe([100, 101, 99, 100, 100.5, 99.5]).unstable == ()
    reasons = stats.describe([100, 130, 80, 100, 120, 90]).unstable
    assert len(reasons) == 1
    assert "half-width" in reasons[0]


def test_a_figure_whose_mean_and_median_disagree_is_unstable():
    # Two stalls in twelve repeats: the interval is narrow, but the median does not see what the mean sees.
    found = stats.describe([100.0] * 10 + [93.0] * 2)
    assert found.half_width is not None
    assert found.half_width < stats.WIDE
    assert found.unstable == ("the mean lies outside the bootstrap interval of the median",)


def test_ratio_of_the_published_comparison():
    assert stats.compare([4249.4], [1689.1]).ratio == pytest.approx(2.52, abs=0.005)


def test_five_repeats_never_establish_a_difference():
    a, b = [200.0, 201, 202, 203, 204], [100.0, 101, 102, 103, 104]
    assert not stats.compare(a, b).separated
    assert stats.compare([*a, 202], [*b, 102]).separated


def test_a_difference_that_welch_and_bootstrap_do_not_both_see_is_not_established():
    # One stall makes Welch's interval wide; the medians still differ.
    found = stats.compare(
        [103, 103, 103, 103, 103, 103.1, 103.2, 40], [100, 100, 100, 100, 100, 100, 100.2, 99.9]
    )
    assert found.bootstrap is not None
    assert found.bootstrap.low > 1
    assert not found.agree
    assert not found.separated


def test_welch_agrees_with_scipy():
    a, b = [100.0, 104, 99, 101, 107, 103], [95.0, 99, 97, 90, 96, 98, 97]
    theirs = scipy_stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
    interval, p = stats.welch(a, b)
    bounds = theirs.confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((math.exp(bounds.low), math.exp(bounds.high)))
    assert p == pytest.approx(theirs.pvalue)


def test_blocks_agree_with_scipy_s_paired_test():
    a, b = [100.0, 104, 99, 101, 107, 103], [95.0, 99, 97, 90, 96, 98]
    # A B B A A B B A ...: a runs in blocks 1, 4, 5, 8, 9, 12, b in the others.
    found = stats.compare_blocks(
        zip((1, 4, 5, 8, 9, 12), a, strict=True), zip((2, 3, 6, 7, 10, 11), b, strict=True)
    )
    theirs = scipy_stats.ttest_rel(np.log(a), np.log(b))
    bounds = theirs.confidence_interval(0.95)
    assert found is not None
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (math.exp(bounds.low), math.exp(bounds.high))
    )
    assert found.p == pytest.approx(theirs.pvalue)
    assert (found.n_a, found.n_b, found.blocks) == (6, 6, True)
    assert found.median_ratio == pytest.approx(math.exp(np.median(np.log(a) - np.log(b))))


def test_a_pair_of_blocks_needs_both_arms_and_averages_the_repeats_of_a_start():
    a = [(1, 100.0), (1, 121.0), (4, 100.0), (5, 50.0)]
    b = [(2, 110.0), (3, 50.0), (3, 50.0)]
    found = stats.compare_blocks(a, b)
    assert found is not None
    assert found.n_a == 2
    assert found.ratio == pytest.approx(math.sqrt(2))
    assert stats.compare_blocks(a, [(7, 1.0)]) is None
    alone = stats.compare_blocks(a, [(2, 110.0)])
    assert alone is not None
    assert (alone.n_a, alone.interval, alone.enough) == (1, None, False)


def test_a_wider_spread_or_fewer_repeats_show_larger_ratios_only():
    quiet, noisy = [100.0, 101, 99, 100, 100.5, 99.5], [100.0, 110, 90, 100, 105, 95]
    shown = [
        stats.compare(a, b).detectable
        for a, b in ((quiet * 2, quiet * 2), (quiet, quiet), (quiet[:3], quiet[:3]), (noisy, noisy))
    ]
    assert None not in shown
    assert shown == sorted(shown)
    assert stats.compare([1.0], quiet).detectable is None


def test_own_flips_keep_an_upper_bound_where_none_was_seen():
    # Clopper and Pearson (1934): for 0 of n it is 1 - (alpha/2)^(1/n).
    none = stats.flip_interval(0, 200)
    assert (none.low, none.high) == (0, pytest.approx(1 - 0.025 ** (1 / 200)))
    theirs = scipy_stats.binomtest(7, 200).proportion_ci(method="exact")
    ours = stats.flip_interval(7, 200)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert stats.flip_interval(200, 200).high == 1


def test_one_constant_arm_still_compares():
    interval, p = stats.welch([100.0] * 6, [400.0, 401, 402, 403, 404, 405])
    assert interval.holds(100 / 402.5)
    assert p < 1e-6


def test_constants_compare_without_a_test():
    assert stats.compare([7.0] * 6, [7.0] * 6).p == 1.0
    assert stats.compare([7.0] * 6, [8.0] * 6).separated


def test_the_same_repeats_give_the_same_report():
    values = [100, 101, 99, 100, 100.5, 99.5]
    assert stats.describe(values) == stats.describe(values)


def test_too_few_questions_can_show_no_difference():
    assert stats.detectable_difference(5, 0) is None
    assert stats.compare_paired([True] * 5, [False] * 5).p > stats.ALPHA


def test_more_questions_show_smaller_differences():
    found = [stats.detectable_difference(n, n // 10) for n in (100, 400, 1319)]
    assert found == sorted(found, reverse=True)


def test_wilson_interval_covers_an_all_right_score_honestly():
    interval = stats.score_interval(100, 100)
    # Wilson's lower end for n of n is n / (n + z^2).
    assert interval.low == pytest.approx(100 / (100 + 1.959964**2))
    assert interval.high == pytest.approx(1.0)
