"""Which quantization_config we read, which modules it covers, and what is refused of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onechip.errors import CheckpointError
from onechip.models.scheme import config_entry, read_scheme

Raw = dict[str, Any]


def scheme(ignore: list[str]) -> Raw:
    return {"quantization_config": config_entry(ignore)}


def group(raw: Raw) -> Raw:
    found: Raw = raw["quantization_config"]["config_groups"]["group_0"]
    return found


def test_no_quantization_config_is_dense() -> None:
    assert read_scheme({"text_config": {}}) is None


def test_it_may_stand_in_the_text_part() -> None:
    assert read_scheme({"text_config": scheme([])}) == read_scheme(scheme([]))


@pytest.mark.parametrize(
    ("targets", "ignore", "covered"),
    [
        (["Linear"], [], True),
        (["Linear"], ["lm_head"], True),
        (["Linear"], ["model.layers.0.mlp.up_proj"], False),
        (["Linear"], ["model.layers.0.mlp"], True),  # a name is the whole name
        (["Linear"], ["re:.*mlp.*"], False),
        (["Linear"], ["re:mlp.*"], True),  # a pattern starts where the name does
        (["Linear"], ["Linear"], False),
        (["re:.*up_proj$"], [], True),
        (["re:.*down_proj$"], [], False),
        (["model.layers.0.mlp.up_proj"], [], True),
    ],
)
def test_targets_and_ignore(targets: list[str], ignore: list[str], covered: bool) -> None:
    raw = scheme(ignore)
    group(raw)["targets"] = targets
    found = read_scheme(raw)
    assert found is not None
    assert found.covers("model.layers.0.mlp.up_proj") == covered


def test_several_groups_add_up() -> None:
    raw = scheme([])
    groups = raw["quantization_config"]["config_groups"]
    groups["group_0"] |= {"targets": ["re:.*q_proj"]}
    groups["group_1"] = groups["group_0"] | {"targets": ["re:.*k_proj"]}
    found = read_scheme(raw)
    assert found is not None
    assert [found.covers(f"layers.0.{name}_proj") for name in "qkv"] == [True, True, False]


def test_fields_that_do_not_change_the_numbers_are_accepted() -> None:
    raw = scheme(["lm_head"])
    raw["quantization_config"] |= {"version": "0.12", "global_compression_ratio": 1.5, "sparsity_config": {}}
    group(raw)["weights"] |= {"actorder": None, "dynamic": False, "observer": "minmax", "observer_kwargs": {}}
    assert read_scheme(raw) == read_scheme(scheme(["lm_head"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda raw: raw.update(quantization_config="int4"),
            'quantization_config is "int4": onechip reads dense',
        ),
        (lambda raw: raw["quantization_config"].update(quant_method="gptq"), 'quant_method is "gptq"'),
        (lambda raw: raw["quantization_config"].pop("quant_method"), "quant_method is null"),
        (lambda raw: raw["quantization_config"].update(format="int-quantized"), 'format is "int-quantized"'),
        (lambda raw: raw["quantization_config"].update(kv_cache_scheme={"bits": 8}), "kv_cache_scheme is"),
        (
            lambda raw: raw["quantization_config"].update(sparsity_config={"format": "2:4"}),
            "sparsity_config is",
        ),
        (lambda raw: raw["quantization_config"].update(bits=4), r"quantization_config\.bits is 4"),
        (lambda raw: raw["quantization_config"].update(config_groups={}), "config_groups is {}"),
        (lambda raw: raw["quantization_config"].update(config_groups={"a": 1}), r"config_groups\.a is 1"),
        (lambda raw: raw["quantization_config"].update(ignore="lm_head"), 'ignore is "lm_head"'),
        (lambda raw: raw["quantization_config"].update(ignore=["re:("]), r"ignore has the pattern 're:\('"),
        (lambda raw: group(raw).update(input_activations={"num_bits": 8}), r"group_0\.input_activations is"),
        (lambda raw: group(raw).update(weights=None), r"group_0\.weights is null"),
        (lambda raw: group(raw).pop("targets"), r"group_0\.targets is null"),
        (lambda raw: group(raw).update(format="marlin-24"), r'group_0\.format is "marlin-24"'),
        (lambda raw: group(raw)["weights"].update(num_bits=8), r"group_0\.weights\.num_bits is 8"),
        (lambda raw: group(raw)["weights"].update(symmetric=False), r"weights\.symmetric is false"),
        (lambda raw: group(raw)["weights"].update(group_size=128), r"weights\.group_size is 128"),
        (lambda raw: group(raw)["weights"].update(type="float"), r'weights\.type is "float"'),
        (lambda raw: group(raw)["weights"].update(actorder="group"), r'weights\.actorder is "group"'),
        (lambda raw: group(raw)["weights"].update(zero_point=True), r"weights\.zero_point is true"),
        (lambda raw: group(raw)["weights"].pop("strategy"), r"weights\.strategy is null"),
    ],
)
def test_other_quantisations_are_refused_by_field(change: Callable[[Raw], object], message: str) -> None:
    raw = scheme([])
    change(raw)
    with pytest.raises(CheckpointError, match=message):
        read_scheme(raw)
