"""mistral.rs through its Python binding and a front of ours (fronts/mistral_rs.py): it has no server."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

from onechip.errors import EngineError
from onechip.ladder import weights
from onechip.ladder.engines import recipe
from onechip.ladder.engines.engine import Engine, Launch, Start, Variant
from onechip.ladder.engines.recipe import Recipe

NAME = "mistral.rs"
DISTRIBUTION = "mistralrs"
FRONT = Path(__file__).parent / "fronts" / "mistral_rs.py"
PREFIX, NESTED_PREFIX = "model.", "model.language_model."
"""Of tensor names, in a checkpoint of the text model alone and in the published one."""
COPY_BYTES = 16 << 20
PROJECTOR = {
    "general.architecture": "clip",
    "general.type": "mmproj",
    "clip.projector_type": "gemma4v",
}
GGUF_STRING = 8
"""The format's number for a text value."""
COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


def _launch(start: Start) -> Launch:
    if recipe.installed(NAME, DISTRIBUTION) is None:
        raise EngineError("mistral.rs is not installed: run onechip ladder install mistral.rs")
    if start.checkpoint.suffix == ".gguf":
        words = ["--model", str(start.checkpoint), *_companions(start.arm.model, start.cache)]
    else:
        words = ["--model", str(nested(start.checkpoint, start.cache))]
    words += ["--port", str(start.port), "--alias", start.arm.model, "--requests", str(start.requests)]
    environment = {"RAYON_NUM_THREADS": str(start.host.threads)}
    if "f32" in start.arm.flags:
        # Its cache is float16 on a CPU whatever the weights are, unless this is set.
        environment["MISTRALRS_CPU_KV_F32"] = "1"
    return Launch([str(recipe.python(NAME)), "-I", str(FRONT), *words, *start.arm.flags], environment)


def _companions(model: str, cache: Path) -> list[str]:
    """What mistral.rs wants beside a GGUF file of Gemma 4, made in `cache`.

    It takes the config from the checkpoint that the file came from, and refuses to load without a projector
    for images. With the config of the text model alone it never reads the projector's tensors, so one without
    any serves.

    Raises:
        EngineError: the model is a .gguf file itself, and no config.json is known.
    """
    folder = weights.source(model)
    if folder.is_file():
        raise EngineError(
            f"mistral.rs takes {model} only with the config.json that it was made from: give the ladder the"
            " checkpoint's folder, from which it makes the .gguf file itself."
        )
    made = cache / "config"
    made.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "config.json").read_bytes())
    (made / "config.json").write_text(json.dumps(config.get("text_config", config)))
    for name in COMPANIONS:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, made / name)
    projector = cache / "projector.gguf"
    projector.write_bytes(empty_projector())
    return ["--config", str(made), "--projector", str(projector)]


def empty_projector() -> bytes:
    """A GGUF file (version 3) with the metadata of Gemma 4's projector and no tensors."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    content = b"GGUF" + struct.pack("<IQQ", 3, 0, len(PROJECTOR))
    for name, value in PROJECTOR.items():
        content += text(name) + struct.pack("<I", GGUF_STRING) + text(value)
    return content + b"\0" * (-len(content) % 32)


def nested(checkpoint: Path, cache: Path) -> Path:
    """A folder that mistral.rs reads: it knows Gemma 4 only with the published checkpoint's tensor names.

    A checkpoint of the text model alone is copied into `cache` under those names, which is not part of a
    measured start; any other is given as it is.

    Raises:
        EngineError: a file of tensors is damaged.
    """
    files = sorted(checkpoint.glob("*.safetensors"))
    if any(name.startswith(NESTED_PREFIX) for path in files for name in _header(path)[0]):
        return checkpoint
    folder = cache / "nested"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(checkpoint.iterdir()):
        copy = folder / path.name
        if path.is_dir() or copy.exists():
            continue
        part = folder / f"{path.name}.part"
        if path.suffix == ".safetensors":
            _renamed(path, part)
        elif path.name.endswith(".safetensors.index.json"):
            index = json.loads(path.read_bytes())
            index["weight_map"] = {_nested_name(name): file for name, file in index["weight_map"].items()}
            part.write_text(json.dumps(index))
        else:
            shutil.copyfile(path, part)
        part.replace(copy)
    return folder


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where its data begin; raises EngineError."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
    except (OSError, OverflowError, MemoryError, ValueError, struct.error) as error:
        raise EngineError(f"{path} is no file of tensors: {error}.") from None
    return dict(header), 8 + length


def _renamed(source: Path, target: Path) -> None:
    """The same data behind a header with the published names."""
    header, begin = _header(source)
    text = json.dumps({_nested_name(name): entry for name, entry in header.items()}).encode()
    text += b" " * (-len(text) % 8)
    with source.open("rb") as old, target.open("wb") as new:
        old.seek(begin)
        new.write(struct.pack("<Q", len(text)) + text)
        shutil.copyfileobj(old, new, COPY_BYTES)


def _nested_name(name: str) -> str:
    return NESTED_PREFIX + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name


ENGINE = Engine(
    name=NAME,
    summary="mistral.rs's Python binding behind an HTTP front of ours",
    variants={
        "bf16": Variant(flags=("--dtype", "bf16"), remark="cache in float16"),
        "f32": Variant(flags=("--dtype", "f32")),
        "q4_0": Variant(
            "gguf-q4_0",
            flags=("--dtype", "bf16"),
            remark="cache in float16; Q4_0 is multiplied with activations in int8, groups of 32",
        ),
    },
    version=lambda: recipe.installed(NAME, DISTRIBUTION),
    launch=_launch,
    recipe=Recipe(
        lock="mistral_rs",
        python=("3.11", "3.12", "3.13"),
        download_bytes=80 << 20,
        disk_bytes=300 << 20,
        check=("-c", "import mistralrs"),
        elsewhere="Install mistral.rs as it says itself and add it with openai=http://HOST:PORT/v1.",
    ),
    formats="safetensors: bf16; GGUF: Q4_0",
    drafter="none (its binding takes one, untried)",
    tools="yes, always",
    needs="a front of ours for HTTP (chat only); text-only checkpoints are copied under the published names",
)
