"""Trained weights and a tokenizer in, the model folder of the package out, in the published form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from onechip.models.layout import Params
from onechip.models.weights import save_checkpoint
from tools.acorn.model import CONFIG, GENERATION_CONFIG
from tools.acorn.samples import MODEL_DIR


def install(params: Params, tokenizer: Path, folder: Path = MODEL_DIR) -> None:
    """Write config, weights in bf16, tokenizer and generation_config; template and card are kept by hand."""
    rounded = jax.tree.map(lambda leaf: np.asarray(leaf).astype(ml_dtypes.bfloat16), params)
    save_checkpoint(folder, CONFIG, rounded)
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    content = json.dumps(GENERATION_CONFIG, indent=2) + "\n"
    (folder / "generation_config.json").write_text(content, encoding="utf-8")
