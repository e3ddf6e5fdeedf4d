"""The published comparison against the table of spec/flights.md, and the facts that follow from it."""

from __future__ import annotations

import pytest

from onechip.ladder.published import load

ONE = """
vLLM 121.1/108.4/140.4/143.9
SGLang 119.9/97.8/136.5/-
SGLang-JAX -/-/-/159.9
llama.cpp 108.8/104.8/135.7/-
mistral.rs 118.9/113.5/144.6/-
PyTorch engine 118.9/109.8/134.7/6.6
LiteRT-LM 62.0/44.6/98.4/-
JAX engine -/-/-/134.3
Rust model over PJRT -/-/-/145.2
"""
MANY = """
vLLM 1658/1165.5/4516.3/1689.1
SGLang 1711/908.6/2967.1/-
SGLang-JAX -/-/-/4249.4
llama.cpp 633/462.5/1170.3/-
mistral.rs 308/237.3/1825.2/-
"""
DRAFTER = """
vLLM 1.90/1.78/1.96/-
llama.cpp 1.35/1.18/1.53/-
SGLang 1.33/0.72/1.39/-
LiteRT-LM 1.10/0.98/1.15/-
mistral.rs 0.72/-/0.95/-
"""
CHIPS = ("3050", "t4", "l4", "v5e-1")
KNOWN = load()


@pytest.mark.parametrize(("figure", "table"), [("one", ONE), ("many", MANY), ("drafter", DRAFTER)])
def test_every_figure_twice(figure: str, table: str) -> None:
    """Typed in a second time, by row instead of by engine."""
    typed = {}
    for line in table.strip().splitlines():
        name, _, values = line.rpartition(" ")
        typed |= {
            (name, chip): float(v) for chip, v in zip(CHIPS, values.split("/"), strict=True) if v != "-"
        }
    kept = {
        (engine.name, chip): value
        for engine in KNOWN.engine
        for chip, found in engine.on.items()
        if (value := getattr(found, figure)) is not None
    }
    assert kept == typed


def test_starts_failures_and_quality() -> None:
    starts = {(e.name, c): f.start_s for e in KNOWN.engine for c, f in e.on.items() if f.start_s is not None}
    assert starts == {("vLLM", "v5e-1"): 2055.0, ("Rust model over PJRT", "v5e-1"): 22.0}
    fails = {(e.name, c): f.fails for e in KNOWN.engine for c, f in e.on.items() if f.fails}
    assert fails == {("llama.cpp", "v5e-1"): "no backend", ("mistral.rs", "v5e-1"): "no backend"}
    assert KNOWN.figures("mistral.rs", "t4").drafter_fails == "fails on dtype"
    assert [(q.set, q.precision, q.low, q.high) for q in KNOWN.quality] == [
        ("GSM8K", "int4", 0.8954, 0.9030),
        ("GSM8K", "bf16", 0.9113, 0.9143),
        ("BFCL", "", 0.9150, 0.9250),
    ]


def one(engine: str) -> float:
    value = KNOWN.figures(engine, "v5e-1").one
    assert value is not None
    return value


def many(engine: str) -> float:
    value = KNOWN.figures(engine, "v5e-1").many
    assert value is not None
    return value


def test_the_facts_that_a_claim_must_reproduce() -> None:
    assert f"{many('SGLang-JAX') / many('vLLM'):.2f}" == "2.52"
    assert f"{one('JAX engine') / one('vLLM'):.3f}" == "0.933"
    assert f"{one('vLLM') / one('JAX engine'):.2f}" == "1.07"
    start_s = KNOWN.figures("vLLM", "v5e-1").start_s
    assert start_s is not None
    assert f"{start_s / 60:.0f}" == "34"


def test_the_claim_that_must_be_rejected() -> None:
    """ "Four engines are within 12 % of each other" is false; "within 12 % of vLLM" is true."""
    speeds = {name: one(name) for name in ("vLLM", "SGLang-JAX", "JAX engine", "Rust model over PJRT")}
    assert f"{100 * (max(speeds.values()) / min(speeds.values()) - 1):.1f}" == "19.1"
    assert all(abs(speed / speeds["vLLM"] - 1) < 0.12 for speed in speeds.values())
