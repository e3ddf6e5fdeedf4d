"""The folder that stands for a GGUF file: what is in it, when it is made again, and files in parts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from onechip.errors import CheckpointError
from onechip.models.config import read_config
from onechip.models.generation import GenerationDefaults
from onechip.models.gguf import view as views
from onechip.models.gguf.view import linked_files, view
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import load_weights
from tests.models.gguf_files import VOCAB, close, config, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "views"


def test_it_is_a_checkpoint_folder(tmp_path: Path, root: Path) -> None:
    gguf = write(tmp_path / "x.gguf", "gemma4", keys={"general.sampling.top_k": 64})
    folder = view(gguf, root)
    found = read_config(folder)
    assert found == config("gemma4", bos_token_id=2)
    tokenizer = Tokenizer.load(folder, found.eos_ids)
    assert tokenizer.encode("a b a", add_bos=True) == [2, 261, 260, 262, 263]
    assert (tokenizer.vocab_size, tokenizer.stop_ids) == (VOCAB, {1})
    assert GenerationDefaults.load(folder).top_k == 64
    assert (folder / "chat_template.jinja").read_text() == "{{ bos_token }}{{ messages[0].content }}"
    assert linked_files(folder) == [gguf]


def test_it_is_made_once(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = write(tmp_path / "x.gguf", "llama")
    folder = view(gguf, root)
    monkeypatch.setattr(views, "_texts", lambda path: pytest.fail("parsed again"))
    assert view(gguf, root) == folder
    monkeypatch.chdir(tmp_path)
    assert view(Path("x.gguf"), root) == folder


def test_another_file_in_its_place_is_noticed(tmp_path: Path, root: Path) -> None:
    """What stood for the old one, and for a file that is gone, is cleared away."""
    other = write(tmp_path / "other.gguf", "llama")
    gguf = write(tmp_path / "x.gguf", "llama")
    stale = [view(other, root), view(gguf, root)]
    other.unlink()
    write(gguf, "llama", keys={"context_length": 99})
    os.utime(gguf, (1, 1))
    folder = view(gguf, root)
    assert read_config(folder).max_position == 99
    assert sorted(root.iterdir()) == [folder]
    assert folder not in stale


def test_a_cache_that_cannot_be_written(tmp_path: Path, root: Path) -> None:
    root.touch()
    with pytest.raises(CheckpointError, match=r"views cannot be written .*set XDG_CACHE_HOME"):
        view(write(tmp_path / "x.gguf", "llama"), root)


def test_a_config_that_is_refused_names_the_file(tmp_path: Path, root: Path) -> None:
    gguf = write(tmp_path / "x.gguf", "gemma4", keys={"expert_count": 8})
    with pytest.raises(CheckpointError, match=r"x\.gguf as a config\.json: enable_moe_block is true"):
        view(gguf, root)
    assert not root.exists()


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A model in two files: the first has the metadata and all but one tensor."""
    paths = [tmp_path / f"x-0000{number}-of-00002.gguf" for number in (1, 2)]
    keys = {"split.count": 2, "split.no": 0, "split.tensors.count": 38}
    write(paths[0], "llama", keys={}, skip=("output_norm.weight",), split=keys)
    second = GGUFWriter(paths[1], "llama")
    second.add_uint16("split.count", 2)
    second.add_uint16("split.no", 1)
    second.add_tensor("output_norm.weight", np.full(256, 3, np.float32))
    close(second)
    return paths


def test_a_model_in_parts(parts: list[Path], root: Path) -> None:
    """Whichever of them is named."""
    folder = view(parts[0], root)
    assert view(parts[1], root) == folder
    assert linked_files(folder) == parts
    assert load_weights(folder, read_config(folder))["norm"].tolist() == [3] * 256


def test_a_part_that_is_missing_or_another(parts: list[Path], root: Path, tmp_path: Path) -> None:
    content = parts[1].read_bytes()
    parts[1].write_bytes(parts[0].read_bytes())
    with pytest.raises(
        CheckpointError, match=r"00002-of-00002\.gguf says that it is part 1 of 2, its name that it"
    ):
        view(parts[0], root)
    parts[1].write_bytes(content.replace(b"output_norm.weight", b"output_norm.wXXght"))
    folder = view(parts[0], root)
    with pytest.raises(
        CheckpointError, match=r"output_norm\.wXXght in .*00002\.gguf is not a tensor of this"
    ):
        load_weights(folder, read_config(folder))
    parts[1].unlink()
    with pytest.raises(
        CheckpointError, match=r"00002-of-00002\.gguf is missing: .* is one of 2 parts, fetch them"
    ):
        view(parts[0], root)
    alone = parts[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(
        CheckpointError, match=r"alone\.gguf says that it is part 1 of 2, its name that it is part 1 of 1"
    ):
        view(alone, root)
