"""What is kept of an engine's log when it fails."""

from __future__ import annotations

from onechip.ladder.engines.process import LOG_LINES, telling


def test_the_last_lines() -> None:
    lines = [f"line {number}" for number in range(40)]
    assert telling("\n\n".join(lines)) == tuple(lines[-LOG_LINES:])
    assert telling("") == ()


def test_an_exception_is_not_lost_behind_an_orderly_end() -> None:
    """As vLLM ends: the reason, the same again from another process, much about the end, leaks."""
    reason = "(Worker) ERROR AttributeError: no attribute 'gemm'"
    log = [
        "Loading",
        reason,
        "(Core) ERROR AttributeError: no attribute 'gemm'",
        "(Api) ERROR vllm.EngineDeadError: see above",
        *(f"INFO shutdown {number}" for number in range(20)),
        "nanobind: leaked 2 functions!",
        ' - leaked function "get_int8"',
        " - ... skipped remainder",
        "See https://nanobind.readthedocs.io/en/latest/refleaks.html",
    ]
    found = telling("\n".join(log))
    assert found[:2] == ("(Core) ERROR AttributeError: no attribute 'gemm'", log[3])
    assert found[2:] == tuple(f"INFO shutdown {number}" for number in range(10, 20))
    assert len(found) == LOG_LINES


def test_an_exception_among_the_last_lines_stands_once() -> None:
    log = ["ValueError: bad", *map(str, range(3))]
    assert telling("\n".join(log)) == tuple(log)


def test_colours_and_bars_are_left_out() -> None:
    log = (
        "\x1b[2m9:41\x1b[0m \x1b[31mERROR\x1b[0m no field\nloading 1 %\rloading 99 %\r\n\x1b]0;title\x07done"
    )
    assert telling(log) == ("9:41 ERROR no field", "loading 99 %", "done")
