"""A checkpoint's generation_config.json -> GenerationDefaults: stop ids, and how it is best sampled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from onechip.errors import CheckpointError


class _File(msgspec.Struct):
    """The fields that we read; the file has others, which do not concern a server."""

    eos_token_id: int | list[int] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What a request gets for a sampling field that it leaves out.

    Attributes:
        temperature: 0 where the checkpoint says `do_sample: false`; 1, OpenAI's default, where it is silent.
        top_k: 0 keeps all tokens.
        eos_ids: stop ids of generation_config.json, in its order.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    eos_ids: tuple[int, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> GenerationDefaults:
        """Read `folder/generation_config.json`; a checkpoint without one gets the defaults above.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = folder / "generation_config.json"
        if not path.is_file():
            return cls()
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"{path} cannot be read: {error}.") from None
        eos = file.eos_token_id
        temperature = 1.0 if file.temperature is None else file.temperature
        return cls(
            temperature=0.0 if file.do_sample is False else temperature,
            top_k=max(file.top_k or 0, 0),
            top_p=1.0 if file.top_p is None else file.top_p,
            min_p=file.min_p or 0.0,
            eos_ids=() if eos is None else (eos,) if isinstance(eos, int) else tuple(eos),
        )
