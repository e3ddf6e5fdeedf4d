"""`onechip convert`: the same weights in another form, exactly, or with a word on what is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onechip.convert.encode import Notes
from onechip.convert.forms import Form, find_form, form_of, gguf_type
from onechip.convert.gguf_metadata import general_metadata, model_metadata, rope_freqs, settings_metadata
from onechip.convert.gguf_writer import GgufInfo, write_gguf
from onechip.convert.plan import Chosen, choose, gguf_blocks, safetensors_parts
from onechip.convert.source import Source
from onechip.convert.target import check_free, check_room, new_folder
from onechip.errors import UsageError
from onechip.models.gguf.names import ROPE_FREQS
from onechip.models.scheme import config_entry
from onechip.models.tensorfile import write_tensors
from onechip.models.weights import full_name, name_prefix

__all__ = ["Summary", "convert", "form_of"]

Array = NDArray[Any]
Progress = Callable[[int, int], None]

_GGUF_NAME = "model.gguf"
_SIBLINGS = "re:.*(vision|audio|multi_modal).*"  # the modules of the parts that stay as they are


@dataclass(frozen=True)
class Summary:
    """What a conversion wrote.

    Attributes:
        path: the folder or the file.
        form: its name in FORMS.
        weight_bytes: of the tensors.
        notes: what was not carried to the bit.
    """

    path: Path
    form: str
    weight_bytes: int
    notes: Notes

    def lines(self) -> list[str]:
        """What there is to say, for a person."""
        notes = self.notes
        size = (
            f"{self.weight_bytes / 1e9:.3g} GB"
            if self.weight_bytes >= 1e8
            else f"{self.weight_bytes / 1e6:.3g} MB"
        )
        lines = [f"{self.path}: {self.form}, {size} of weights"]
        if notes.levels:
            lines.append(f"Rounded to int4, as --round allows: {len(notes.levels)} tensors.")
        for encoding, count in notes.rounded.items():
            lines.append(
                f"Rounded to {gguf_type(encoding)}: {count:,} values, which it does not hold exactly."
            )
        if notes.between:
            lines.append(f"Levels kept, scale the float16 nearest to it: {notes.between:,} groups of 32.")
        if notes.kept:
            shown = ", ".join(notes.kept[:3]) + (", ..." if len(notes.kept) > 3 else "")
            lines.append(f"Not int4, as in the source: {len(notes.kept)} linear weights ({shown}).")
        return lines if len(lines) > 1 else [f"{lines[0]}, every value as it was."]


def convert(
    source: Path,
    target: Path,
    form: str,
    *,
    round: bool = False,
    tables: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Write the checkpoint `source` again as `form`.

    4-bit values are carried to the bit, whichever of the int4 forms they go between. Dense weights become
    int4 exactly if they are on a grid (see `grid.find_grid`), and are refused otherwise, unless `round` is
    set. A dense form rounds what does not fit its dtype, which the summary's notes count.

    Args:
        source: a folder of safetensors, or a .gguf file.
        target: a new or empty folder; for the GGUF forms also a new file that ends in .gguf.
        form: a name in `forms.FORMS` or `forms.ALIASES`.
        round: dense weights that are on no grid may be rounded to int4 by `quant.quantize_int4`.
        tables: of gguf-q4_0, how the embedding tables are stored: a name in `forms.TABLES`.
        progress: called with (bytes written, bytes in all).

    Raises:
        UsageError: an unknown form, a source that is in it already, a target in use, or too small a disk.
        CheckpointError: the source is damaged or of a kind that is not served, or holds what the form cannot,
            named by its place; or the target cannot be written. Nothing is left at `target`.
    """
    wanted = find_form(form, tables)
    if wanted.container == "safetensors" and target.suffix == ".gguf":
        raise UsageError(f"{target} ends in .gguf, but {wanted.name} is a folder of safetensors.")
    check_free(target)
    if tables is None and form_of(source) == wanted.name:
        raise UsageError(f"{source} is {wanted.name} already: copy it.")
    opened, notes = Source(source), Notes()
    chosen = choose(opened, wanted, notes)
    if wanted.container == "gguf":
        total = _write_gguf(opened, target, wanted, chosen, round, notes, progress)
    else:
        total = _write_folder(opened, target, chosen, round, notes, progress)
    return Summary(target, wanted.name, total, notes)


def _write_folder(
    source: Source, target: Path, chosen: list[Chosen], allowed: bool, notes: Notes, progress: Progress | None
) -> int:
    companions = source.companions()
    parts = safetensors_parts(source, chosen, allowed, notes)
    infos = {name: info for part in parts for name, info in part.infos.items()}
    total = sum(info.nbytes for info in infos.values())
    check_room(target, total)
    with new_folder(target) as folder:
        for name, content in companions.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
        text = json.dumps(_config_json(source, chosen), indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")
        pieces = (piece for part in parts for piece in part.pieces())
        write_tensors(folder / "model.safetensors", infos, _counted(pieces, total, progress))
    return total


def _write_gguf(
    source: Source,
    target: Path,
    form: Form,
    chosen: list[Chosen],
    allowed: bool,
    notes: Notes,
    progress: Progress | None,
) -> int:
    metadata = general_metadata(source.config, source.name, gguf_type(form.linears))
    metadata |= model_metadata(source.config)
    metadata |= source.tokenizer_keys()
    metadata |= settings_metadata(source.config, source.config_json, source.generation_json())
    blocks = gguf_blocks(source, chosen, allowed, notes)
    infos = {block.name: block.info for block in blocks}
    freqs = rope_freqs(source.config)
    if freqs is not None:
        infos[ROPE_FREQS] = GgufInfo("F32", freqs.shape)
    total = sum(info.nbytes for info in infos.values())
    check_room(target, total)
    data = _counted_tensors([block.pieces for block in blocks], freqs, total, progress)
    if target.suffix == ".gguf":
        target.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(target, metadata, infos, data)
    else:
        with new_folder(target) as folder:
            write_gguf(folder / _GGUF_NAME, metadata, infos, data)
    return total


def _config_json(source: Source, chosen: list[Chosen]) -> dict[str, Any]:
    """The source's config.json, with what the new weights are in place of what the old ones were."""
    raw = {key: value for key, value in source.config_json.items() if key != "quantization_config"}
    text = raw
    if isinstance(raw.get("text_config"), dict):
        text = raw["text_config"] = dict(raw["text_config"])
        text.pop("quantization_config", None)
    for holder in (raw, text):
        holder |= {key: "bfloat16" for key in ("dtype", "torch_dtype") if key in holder}
    if not {"dtype", "torch_dtype"} & (raw.keys() | text.keys()):
        raw["dtype"] = "bfloat16"  # engines take a config without it for one in float32
    if text.get("per_layer_config") and not text.get("global_head_dim"):
        # transformers leaves it out since 5.19; other engines read nothing else.
        text["global_head_dim"] = max(layer.head_dim for layer in source.config.layers)
    if any(choice.encoding == "INT4" for choice in chosen):
        raw["quantization_config"] = _quantization(source, chosen)
    return raw


def _quantization(source: Source, chosen: list[Chosen]) -> dict[str, Any]:
    prefix = name_prefix(source.config_json)
    dense = {"lm_head"}  # other engines pack a head unless it is named here, even one that is tied
    dense |= {full_name(prefix, c.spec.module) for c in chosen if c.spec.linear and c.encoding != "INT4"}
    dense -= {full_name(prefix, c.spec.module) for c in chosen if c.spec.linear and c.encoding == "INT4"}
    tables = [full_name(prefix, c.spec.module) for c in chosen if c.spec.table and c.encoding == "INT4"]
    return config_entry(sorted(dense) + ([_SIBLINGS] if source.siblings else []), tables)


def _counted(pieces: Iterable[Array], total: int, progress: Progress | None) -> Iterator[Array]:
    done = 0
    for piece in pieces:
        yield piece
        done += piece.nbytes
        if progress is not None:
            progress(done, total)


def _counted_tensors(
    tensors: list[Callable[[], Iterator[Array]]],
    freqs: NDArray[np.float32] | None,
    total: int,
    progress: Progress | None,
) -> Iterator[Iterator[Array]]:
    """The pieces of each tensor, counted over all; the RoPE divisors come last."""
    done = 0

    def counted(pieces: Iterable[Array]) -> Iterator[Array]:
        nonlocal done
        for piece in pieces:
            yield piece
            done += piece.nbytes
            if progress is not None:
                progress(done, total)

    for tensor in tensors:
        yield counted(tensor())
    if freqs is not None:
        yield counted([freqs])
