"""The memory plan: against what is really allocated and compiled, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from onechip.convert.shapes import SHAPES
from onechip.engine import placement
from onechip.engine.chip import Chip
from onechip.engine.core import Engine
from onechip.engine.plan import KEPT_FREE, Plan, make_plan, tree_bytes
from onechip.engine.prefixes import Reuse
from onechip.engine.types import Dtype, EngineConfig
from onechip.errors import CapacityError, UsageError
from onechip.kernels.api import Int4, Kind
from onechip.kernels.choice import choose
from onechip.kernels.xla import PlainKernels
from onechip.models.config import ModelConfig, parse_config, read_config
from onechip.models.layout import expected_tensors, get, put
from onechip.models.quant import quantize_int4
from onechip.models.weights import load_weights, weight_reader

GIB = 2**30
GOLDEN = Path(__file__).parents[1] / "golden"
H200 = Chip("gpu", "NVIDIA H200", 139 * GIB, 4800 * 10**9)
V5E = Chip("tpu", "TPU v5 lite", int(15.75 * GIB), 819 * 10**9)


@pytest.fixture(scope="module")
def e2b() -> ModelConfig:
    return parse_config(SHAPES["e2b"])


def planned(config: ModelConfig, chip: Chip, *, int4: bool = False, **wishes: int) -> Plan:
    wish: Dtype = "w4a16" if int4 else "bf16"
    precision = placement.choose_precision(config, wish, {}, chip.platform, PlainKernels())
    weights = placement.planned_bytes(config, precision)
    return make_plan(config, EngineConfig(Path("x"), **wishes), chip, precision, weights)


def test_bytes_of_e2b_are_the_published_ones(e2b: ModelConfig) -> None:
    """9.26 GB in bf16; 3 spans of 2,048 bytes a token and 12 rings of 512 x 1,024 bytes a request."""
    plan = planned(e2b, H200, context=4096, max_requests=64)
    assert plan.weight_bytes == pytest.approx(9.26e9, rel=0.001)
    assert plan.cache_bytes == 64 * (4096 * 6144 + 12 * 512 * 1024)


def test_int4_weights_stay_packed_off_the_cpu(e2b: ModelConfig) -> None:
    dense, packed = planned(e2b, V5E), planned(e2b, V5E, int4=True)
    linears = 1_876_800_000
    assert dense.weight_bytes - packed.weight_bytes == pytest.approx(linears * (2 - 0.5625), rel=0.01)


def test_without_wishes_it_takes_what_fits(e2b: ModelConfig) -> None:
    assert (planned(e2b, H200).slots, planned(e2b, H200).context) == (64, 4096)
    small = planned(e2b, replace(H200, free_bytes=int(10.5 * GIB)))
    assert small.fits
    assert (small.slots, small.context) == (32, 4096)


@pytest.mark.parametrize(
    ("free", "wishes"),
    [
        (16, {"context": 131072, "max_requests": 64}),
        (12, {"context": 32768, "max_requests": 16}),
        (10, {"context": 4096, "max_requests": 64}),
    ],
)
def test_what_does_not_fit_is_refused_with_a_mend_that_fits(
    e2b: ModelConfig, free: int, wishes: dict[str, int]
) -> None:
    chip = replace(V5E, free_bytes=free * GIB)
    with pytest.raises(CapacityError) as refused:
        planned(e2b, chip, **wishes)
    message = refused.value.message
    assert f"{wishes['max_requests']} requests of {wishes['context']} tokens do not fit" in message
    for flag, field in (("--max-requests", "max_requests"), ("--context", "context")):
        for value in re.findall(rf"What fits:.*{flag} (\d+)", message):
            assert planned(e2b, chip, **(wishes | {field: int(value)})).fits
    assert "What fits" in message


def test_a_model_too_large_for_the_chip(e2b: ModelConfig) -> None:
    with pytest.raises(CapacityError, match="take a smaller model or --dtype w4a16"):
        planned(e2b, replace(V5E, free_bytes=4 * GIB))


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        ({"context": 200_000}, "131072"),
        ({"context": 1}, "context"),
        ({"max_requests": 65}, "64"),
        ({"max_requests": 0}, "1 to"),
    ],
)
def test_wishes_that_nobody_can_have(e2b: ModelConfig, wishes: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        planned(e2b, H200, **wishes)


def test_rings_are_kept_where_there_is_room(e2b: ModelConfig) -> None:
    """An eighth of the requests' caches, less on a chip that is nearly full, none without reuse."""
    ring = 12 * 512 * 1024
    wishes = {"context": 4096, "max_requests": 64}
    plan = planned(e2b, H200, **wishes)
    assert plan.reuse == Reuse(window=512, kept=40)
    assert plan.kept_bytes == 40 * ring <= plan.cache_bytes / 8
    without = planned(e2b, H200, reuse=False, **wishes)
    assert (without.reuse, without.kept_bytes) == (None, 0)
    full = replace(H200, free_bytes=int((without.needed_bytes + 3.5 * ring) / (1 - KEPT_FREE)))
    assert planned(e2b, full, **wishes).reuse == Reuse(window=512, kept=3)
    llama = parse_config(SHAPES["llama3-1b"])
    assert planned(llama, H200).reuse == Reuse(window=0, kept=0)


@pytest.mark.parametrize("wish", [1, 3, 5, 9, 33])
def test_a_wish_for_few_requests_is_covered_by_a_bucket(e2b: ModelConfig, wish: int) -> None:
    plan = planned(e2b, H200, max_requests=wish)
    assert plan.slots == plan.row_buckets[-1] == max(wish, 2)
    assert list(plan.row_buckets) == sorted(set(plan.row_buckets))


def test_the_window_follows_the_time_of_a_step(e2b: ModelConfig) -> None:
    slow = Chip("cpu", "cpu", 64 * GIB, 15 * 10**9)
    assert planned(e2b, H200).window == 8
    assert planned(e2b, slow).window == 1


def test_acorn_needs_what_was_planned(acorn_engine: Engine) -> None:
    """Weights and caches to the byte; temporaries of every program within the estimate."""
    loaded = acorn_engine._loaded
    plan = loaded.plan
    assert tree_bytes(loaded.params) == plan.weight_bytes
    assert tree_bytes(loaded.state.cache) == plan.cache_bytes
    assert tree_bytes(loaded.state.kept) == plan.kept_bytes > 0
    for executable in (*loaded.prefill.values(), *loaded.decode.values()):
        assert executable.memory_analysis().temp_size_in_bytes <= plan.scratch_bytes
    steered = [executable.memory_analysis() for executable in (loaded.forward, loaded.choose)]
    scores = steered[0].output_size_in_bytes - steered[0].alias_size_in_bytes
    assert scores >= 4 * plan.slots * loaded.config.vocab
    assert max(scores + found.temp_size_in_bytes for found in steered) <= plan.scratch_bytes


@pytest.mark.parametrize("case", ["e2b", "e4b", "12b", "31b"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_planned_weights_are_the_placed_ones(case: str, dtype: Dtype) -> None:
    config = read_config(GOLDEN / case)
    precision = placement.choose_precision(config, dtype, {}, "cpu", PlainKernels())
    placed = placement.place(config, weight_reader(GOLDEN / case, config), precision)
    assert tree_bytes(placed) == placement.planned_bytes(config, precision)


def test_planned_weights_are_the_placed_ones_where_some_are_int4() -> None:
    """As in a GGUF file: tables are, a layer's V and another's gate are not: their products become dense."""
    config = read_config(GOLDEN / "e2b")
    params = load_weights(GOLDEN / "e2b", config)
    dense = {"layers.0.self_attn.v_proj.weight", "layers.1.mlp.gate_proj.weight"}
    stored: dict[str, Kind] = {}
    for spec in expected_tensors(config):
        if (spec.table or spec.linear) and spec.name not in dense and spec.shape[1] % 32 == 0:
            put(params, spec.path, Int4(*quantize_int4(get(params, spec.path))))
            stored[spec.name] = "int4"
    assert "embed_tokens.weight" in stored
    precision = placement.choose_precision(config, "auto", stored, "gpu", PlainKernels())
    assert precision.describe() == "int4 weights and tables, bfloat16 activations"
    placed = placement.place(config, lambda spec: get(params, spec.path), precision)
    assert tree_bytes(placed) == placement.planned_bytes(config, precision)
    packed = placement.choose_precision(
        config, "auto", stored | dict.fromkeys(dense, "int4"), "gpu", PlainKernels()
    )
    assert placement.planned_bytes(config, precision) > placement.planned_bytes(config, packed)


@pytest.mark.parametrize("case", ["e2b", "12b", "31b"])
@pytest.mark.parametrize("dtype", ["bf16", "w8a8", "w4a8"])
def test_planned_panels_are_the_placed_ones(case: str, dtype: Dtype) -> None:
    """The CPU's kernels pad weights to whole panels and blocks; quantised ones stay packed."""
    kernels, why_not = choose("cpu")
    if why_not is not None:
        pytest.skip(why_not)
    config = read_config(GOLDEN / case)
    precision = placement.choose_precision(config, dtype, {}, "cpu", kernels)
    placed = placement.place(config, weight_reader(GOLDEN / case, config), precision)
    assert tree_bytes(placed) == placement.planned_bytes(config, precision)
