"""Exports a checkpoint to LiteRT-LM's format: a folder of safetensors in, a .litertlm file out.

The ladder runs this file with the Python of the engine's own environment. It is a program because the
exporter (litert-torch 0.10.0) needs two things mended before it starts:

* It imports TensorFlow for one generated file, the schema of TFLite models, which the package ai-edge-litert
  has as well; so TensorFlow, over a gigabyte, is not installed.
* transformers 5.24 reads the source of a model's module to learn whether its experts may be computed in
  groups, and refuses the exporter's own Gemma 4 class. Its answer is given here; dense models ask for none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PLAIN = "none"
"""The exporter's word for float32; where it is given nothing, it quantises to int8."""


def stand_in_for_tensorflow() -> None:
    from ai_edge_litert import schema_py_generated as schema

    for name in ("tensorflow", "tensorflow.lite", "tensorflow.lite.python"):
        module = ModuleType(name)
        module.__path__ = []
        # torch looks for the specification of every module that it may have to skip.
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
    vars(sys.modules["tensorflow.lite.python"])["schema_py_generated"] = schema
    sys.modules["tensorflow.lite.python.schema_py_generated"] = schema


def mend_experts() -> None:
    from litert_torch.generative.export_hf.model_ext.gemma4 import patch

    patch.LiteRTGemma4TextModel._can_set_experts_implementation_cached_value = True


def main() -> None:
    parser = argparse.ArgumentParser(description="safetensors to .litertlm")
    parser.add_argument("model", type=Path, help="folder with config.json and safetensors")
    parser.add_argument("target", type=Path, help="the .litertlm file to write")
    parser.add_argument("--recipe", default="", help="of quantisation (dynamic_wi8_afp32); empty: float32")
    parser.add_argument("--context", type=int, default=4096, help="tokens that its cache holds")
    parser.add_argument("--prefill", default="32,128", help="lengths that a prompt is cut into")
    args = parser.parse_args()
    stand_in_for_tensorflow()
    mend_experts()
    from litert_torch.generative.export_hf.export import export

    with tempfile.TemporaryDirectory(dir=args.target.parent) as folder:
        export(
            model=str(args.model),
            output_dir=folder,
            prefill_lengths=[int(length) for length in args.prefill.split(",")],
            cache_length=args.context,
            quantization_recipe=args.recipe or PLAIN,
        )
        made = sorted(Path(folder).rglob("*.litertlm"))
        if len(made) != 1:
            raise SystemExit(f"the exporter made {len(made)} .litertlm files in place of one")
        made[0].replace(args.target)


if __name__ == "__main__":
    main()
