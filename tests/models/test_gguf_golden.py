"""The golden models of every family as GGUF files: the config and every weight come back to the bit, so their
golden logits hold for GGUF too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onechip.convert.gguf_metadata import general_metadata, model_metadata, rope_freqs
from onechip.convert.gguf_writer import GgufInfo, Value, write_gguf
from onechip.errors import CheckpointError
from onechip.models.config import ModelConfig, parse_config, read_config
from onechip.models.gguf.checkpoint import GgufCheckpoint, open_parts
from onechip.models.gguf.metadata import Metadata, config_json
from onechip.models.gguf.names import ROPE_FREQS, gguf_tensor, interleave
from onechip.models.layout import Params, expected_tensors, get
from onechip.models.weights import load_weights
from tests.models.gguf_files import Array

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "model.safetensors").exists())


def write(path: Path, config: ModelConfig, params: Params) -> None:
    """All tensors in float32, and of the vocabulary no more than the ids that a config has."""
    arrays: dict[str, Array] = {}
    for spec in expected_tensors(config):
        place = gguf_tensor(spec, config)
        array = np.asarray(get(params, spec.path)).astype(np.float32).reshape(spec.shape) + np.float32(
            place.shift
        )
        arrays[place.name] = array[interleave(len(array), place.heads)] if place.heads else array
    divisors = rope_freqs(config)
    if divisors is not None:
        arrays[ROPE_FREQS] = divisors
    ids = {
        "bos": config.bos_id,
        "padding": config.pad_id,
        "eos": config.eos_ids[0],
        "eot": config.eos_ids[-1],
    }
    metadata = general_metadata(config, path.stem, "F32") | model_metadata(config)
    metadata |= {f"tokenizer.ggml.{name}_token_id": Value("U32", id) for name, id in ids.items()}
    infos = {name: GgufInfo("F32", array.shape) for name, array in arrays.items()}
    write_gguf(path, metadata, infos, ([array] for array in arrays.values()))


@pytest.mark.parametrize("case", CASES)
def test_a_golden_model_comes_back(case: str, tmp_path: Path) -> None:
    config = read_config(GOLDEN / case)
    if case == "gemma3":
        # It is divided by another number than published models are, for which there is no key.
        with pytest.raises(CheckpointError, match=r"query_pre_attn_scalar is .*GGUF has no key for it"):
            model_metadata(config)
        config = replace(config, attention_scale=config.layers[0].head_dim ** -0.5)
    params = load_weights(GOLDEN / case, config)
    write(tmp_path / "x.gguf", config, params)
    files = open_parts(tmp_path / "x.gguf")
    found = parse_config(config_json(Metadata.read(files)))
    for name in ("rope_full", "rope_sliding"):
        ours, stored = getattr(found, name), getattr(config, name)
        np.testing.assert_allclose(ours.divisors, stored.divisors, rtol=1e-6)  # the file has float32
        found = replace(found, **{name: replace(ours, divisors=stored.divisors)})
    assert replace(found, model_type=config.model_type) == config
    checkpoint = GgufCheckpoint(files, found, np.dtype(np.float32))
    specs = expected_tensors(found)
    checkpoint.refuse_surplus(specs)
    for spec in specs:
        stored = np.asarray(get(params, spec.path)).astype(np.float32).reshape(spec.shape)
        np.testing.assert_array_equal(checkpoint.leaf(spec), stored, err_msg=spec.name)
