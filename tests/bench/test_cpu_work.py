"""Bytes and operations of E2B's shape and of small models, counted again by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.bounds import INSTRUCTIONS, Bounds
from bench.cpu_work import BITS, Precision, Work, precision

from onechip.convert.shapes import SHAPES
from onechip.ladder.arms import parse
from onechip.ladder.engines import ENGINES
from onechip.models.config import ModelConfig, parse_config

E2B = parse_config(SHAPES["e2b"])
INT4 = Precision(4.5, 4.5, "int8")
HEAD = 262_144 * 1536


def layer_size(config: ModelConfig, index: int) -> int:
    layer, hidden = config.layers[index], config.hidden
    keys = 2 * layer.kv_heads * layer.head_dim if layer.owns_kv else 0
    return hidden * (2 * layer.heads * layer.head_dim + keys + 3 * layer.intermediate + 2 * config.ple_dim)


def linear_size() -> int:
    return sum(layer_size(E2B, index) for index in range(35)) + 35 * 256 * 1536


def test_a_step_reads_every_weight_once() -> None:
    work = Work(E2B, INT4)
    assert work.step_bytes == (linear_size() + HEAD) * 4.5 / 8
    assert work.step_bytes == pytest.approx(1.28e9, rel=0.02)  # shared/spec/chips.md
    wide_head = Work(E2B, Precision(4.5, 16, "int8"))
    assert wide_head.step_bytes - work.step_bytes == HEAD * 11.5 / 8


def test_a_step_multiplies_every_weight_for_every_row() -> None:
    assert Work(E2B, INT4).step_operations(3) == {"int8": 6.0 * (linear_size() + HEAD)}


def test_a_prompt_skips_the_layers_that_share_keys() -> None:
    """Beside attention, all rows go through 14 layers, and through k and v of the 15th."""
    found = Work(E2B, INT4).prompt_operations(1000)
    every = sum(layer_size(E2B, index) for index in range(14)) + 14 * 256 * 1536 + 2 * 512 * 1536
    once = linear_size() + HEAD - every
    assert found["int8"] == 2.0 * (1000 * every + once)
    assert found["int8"] < 0.35 * 2.0 * 1000 * linear_size()


def test_a_prompt_of_one_token_is_a_step() -> None:
    work = Work(E2B, INT4)
    assert work.prompt_operations(1)["int8"] == work.step_operations(1)["int8"]


def test_attention_sees_no_more_than_the_window() -> None:
    """12 sliding layers, 2 full ones before the last that writes; 8 heads, 256 and 512 wide."""
    sliding = sum(min(position + 1, 512) for position in range(700))
    full = sum(position + 1 for position in range(700))
    expected = 12 * 4.0 * 8 * 256 * sliding + 2 * 4.0 * 8 * 512 * full
    assert Work(E2B, INT4).prompt_operations(700)["bf16"] == expected


def test_activations_in_bf16_add_up_with_attention() -> None:
    ours = Work(E2B, INT4).prompt_operations(64)
    exact = Work(E2B, replace(INT4, activations="bf16")).prompt_operations(64)
    assert exact == {"bf16": ours["int8"] + ours["bf16"]}


def test_bounds_become_rates() -> None:
    machine = Bounds(2, {2: 30e9}, {"int8": 400e9, "bf16": 200e9, "f32": 1e9}, INSTRUCTIONS["avx512_bf16"])
    work = Work(E2B, INT4)
    assert work.decode_tok_s(machine, 1) == pytest.approx(30e9 / work.step_bytes)
    arithmetic = 800e9 / work.step_operations(1)["int8"]
    assert work.decode_tok_s(machine, 64) == pytest.approx(arithmetic)
    prompt = work.prompt_operations(512)
    assert work.prefill_tok_s(machine, 512) == pytest.approx(
        512 / (prompt["int8"] / 800e9 + prompt["bf16"] / 400e9)
    )


@pytest.mark.parametrize(
    ("word", "bits", "activations"),
    [
        ("onechip:int4-emb4", (4.5, 4.5), "int8"),
        ("onechip:int4", (4.5, 16), "int8"),
        ("onechip:w4a16", (4.5, 16), "bf16"),
        ("onechip:bf16", (16, 16), "bf16"),
        ("llama.cpp:q4_0-emb4", (4.5, 4.5), "int8"),
        ("llama.cpp:q4_0-q6_k", (4.5, 6.5625), "int8"),
        ("llama.cpp:f32", (32, 32), "f32"),
        ("vllm:bf16", (16, 16), "bf16"),
        ("vllm:w4a16", (4.5, 16), "bf16"),
        ("vllm:w4a8", (4.5, 16), "int8"),
    ],
)
def test_arms_say_what_they_read_and_multiply(word: str, bits: tuple[float, float], activations: str) -> None:
    (arm,) = parse("acorn", word, ())
    assert precision(arm) == Precision(*bits, activations)


def test_an_arm_that_serves_the_model_as_it_is_is_refused() -> None:
    (arm,) = parse("acorn", "onechip:auto", ())
    with pytest.raises(ValueError, match="onechip:int4-emb4"):
        precision(arm)


def test_every_form_of_every_engine_is_known() -> None:
    forms = {variant.form for engine in ENGINES.values() for variant in engine.variants.values()}
    assert forms - {""} <= BITS.keys()
