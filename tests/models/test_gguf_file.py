"""GGUF files against the gguf package's writer, and files that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from onechip.errors import CheckpointError
from onechip.models.gguf.file import GgufFile, Strings
from tests.models.gguf_files import close


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.gguf"
    file = GGUFWriter(path, "llama")
    file.add_uint64("x.large", 2**40)
    file.add_int32("x.negative", -5)
    file.add_float32("x.small", 1e-6)
    file.add_float64("x.double", 0.1)
    file.add_bool("x.flag", True)
    file.add_string("x.text", "ä🌰")
    file.add_array("x.numbers", [1, 2, 3])
    file.add_array("x.strings", ["a", "", "漢字"])
    file.add_tensor("matrix", np.arange(64 * 2, dtype=np.float32).reshape(2, 64))
    weights = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
    file.add_tensor(
        "blocks", quants.quantize(weights, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0
    )
    file.add_tensor("vector", np.arange(3, dtype=np.float16))
    close(file)
    return path


def test_metadata(path: Path) -> None:
    metadata = GgufFile(path).metadata
    assert metadata["general.architecture"] == "llama"
    assert metadata["x.large"] == 2**40
    assert metadata["x.negative"] == -5
    assert metadata["x.small"] == 1e-6
    assert metadata["x.double"] == 0.1
    assert metadata["x.flag"] is True
    assert metadata["x.text"] == "ä🌰"
    assert metadata["x.numbers"].tolist() == [1, 2, 3]
    strings = metadata["x.strings"]
    assert isinstance(strings, Strings)
    assert len(strings) == 3
    assert strings.decode() == ["a", "", "漢字"]


def test_tensors(path: Path) -> None:
    file = GgufFile(path)
    shapes = {name: (info.dtype, info.shape) for name, info in file.tensors.items()}
    assert shapes == {"matrix": ("F32", (2, 64)), "blocks": ("Q8_0", (4, 64)), "vector": ("F16", (3,))}
    np.testing.assert_array_equal(
        file.blocks("matrix").view("<f4"), np.arange(128, dtype=np.float32).reshape(2, 64)
    )
    assert file.blocks("blocks").shape == (4, 2 * 34)
    np.testing.assert_array_equal(file.blocks("vector").view("<f2"), [[0, 1, 2]])


def test_alignment_is_the_files(tmp_path: Path) -> None:
    file = GGUFWriter(tmp_path / "x.gguf", "llama")
    file.add_custom_alignment(256)
    file.add_tensor("a", np.ones(3, dtype=np.float32))
    file.add_tensor("b", np.full(5, 7, dtype=np.float32))
    close(file)
    np.testing.assert_array_equal(GgufFile(tmp_path / "x.gguf").blocks("b").view("<f4"), [[7] * 5])


def test_cut_anywhere_it_is_one_sentence(path: Path) -> None:
    content = path.read_bytes()
    for size in [*range(4, 900, 7), len(content) // 2, len(content) - 100]:
        path.write_bytes(content[:size])
        with pytest.raises(
            CheckpointError, match=r"x\.gguf is truncated or damaged \(.+\): fetch the file again"
        ):
            GgufFile(path)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"", r"truncated or damaged \(it is empty\)"),
        (b"PK\x03\x04" + bytes(60), "is not a GGUF file: it does not begin with GGUF"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "has GGUF version 1: onechip reads versions 2 and 3"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "is big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0) + bytes(60), "truncated or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + bytes(60), "truncated or damaged"),
    ],
)
def test_no_gguf(tmp_path: Path, start: bytes, message: str) -> None:
    (tmp_path / "x.gguf").write_bytes(start)
    with pytest.raises(CheckpointError, match=message):
        GgufFile(tmp_path / "x.gguf")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no\.gguf cannot be read: No such file"):
        GgufFile(tmp_path / "no.gguf")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # The type of "vector", which follows its only dimension.
        (
            struct.pack("<QI", 3, 1),
            struct.pack("<QI", 3, 999),
            "vector in .* has type 999, which the gguf package",
        ),
        (struct.pack("<IQ", 1, 3), struct.pack("<IQ", 9, 3), "vector has 9 dimensions"),
        (
            struct.pack("<QI", 3, 1),
            struct.pack("<QI", 3, 8),
            "vector has rows of 3, Q8_0 comes in blocks of 32",
        ),
        (struct.pack("<Q", 6) + b"vector", struct.pack("<Q", 6) + b"matrix", "matrix is there twice"),
        ("ä".encode(), b"\xff\xff", "a string is not UTF-8"),
        (struct.pack("<QI", 3, 1), struct.pack("<QI", 2**50, 1), "vector ends at byte"),
    ],
)
def test_a_damaged_header(path: Path, old: bytes, new: bytes, message: str) -> None:
    content = path.read_bytes()
    at = content.rindex(old)
    path.write_bytes(content[:at] + new + content[at + len(old) :])
    with pytest.raises(CheckpointError, match=message):
        GgufFile(path)
