"""The .safetensors format, against the library's own reading and writing, and damaged in every place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from onechip.errors import CheckpointError
from onechip.models.tensorfile import DTYPES, TensorFile, TensorInfo, dtype_name, write_tensors

ARRAYS = {
    "a.weight": np.arange(64, dtype=np.float32).reshape(8, 8),
    "b.weight": np.arange(6, dtype=np.int64).reshape(1, 2, 3),
    "c.flag": np.array([True, False]),
    "d.scalar": np.array(3, np.int32),
    "e.empty": np.zeros((0, 4), np.float16),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "w.safetensors"
    infos = {name: TensorInfo(dtype_name(array.dtype), array.shape) for name, array in ARRAYS.items()}
    write_tensors(path, infos, ARRAYS.values())
    return path


def test_the_library_reads_what_we_write(path: Path) -> None:
    with safe_open(path, "np") as file:
        assert sorted(file.keys()) == sorted(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(file.get_tensor(name), array)


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    safetensors.numpy.save_file(ARRAYS, tmp_path / "w.safetensors", {"format": "np"})
    file = TensorFile(tmp_path / "w.safetensors")
    assert set(file.tensors) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert file.tensors[name] == TensorInfo(dtype_name(array.dtype), array.shape)
        np.testing.assert_array_equal(file.read(name), array, strict=True)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back(name: str, tmp_path: Path) -> None:
    array = np.arange(2).astype(DTYPES[name])
    write_tensors(tmp_path / "w.safetensors", {"x": TensorInfo(name, (2,))}, [array])
    np.testing.assert_array_equal(TensorFile(tmp_path / "w.safetensors").read("x"), array, strict=True)


def test_pieces_may_be_cut_anywhere(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).astype(ml_dtypes.bfloat16)
    infos = {"a": TensorInfo("BF16", (4, 4)), "b": TensorInfo("BF16", (8,))}
    write_tensors(tmp_path / "w.safetensors", infos, [whole[:5], whole[5:23], whole[23:]])
    file = TensorFile(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(file.read("a"), whole[:16].reshape(4, 4))
    np.testing.assert_array_equal(file.read("b"), whole[16:])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-10], r"is truncated or damaged \(\S+ ends at byte \d+ of \d+\)"),
        (lambda data: data[:100], "is truncated or damaged .*100 bytes do not hold the header"),
        (lambda data: data[:5], "is truncated or damaged .*5 bytes do not hold the header"),
        (lambda data: b"", "is truncated or damaged .*0 bytes do not hold the header"),
        (lambda data: b"<html>" * 9, "is truncated or damaged .*54 bytes do not hold the header"),
        (lambda data: data[:8] + b"[" + data[9:], "is truncated or damaged .*the header is not JSON"),
        (lambda data: b"\2" + bytes(7) + b"[]", "is truncated or damaged .*the header is not a JSON object"),
        (
            lambda data: data.replace(b"[8,8]", b"[9,8]"),
            "a.weight has 256 bytes, its shape and dtype need 288",
        ),
        (lambda data: data.replace(b"[8,8]", b'"888"'), "the header's entry for a.weight is malformed"),
        (lambda data: data.replace(b"[8,8]", b"[8,-]"), "the header is not JSON"),
        (
            lambda data: data.replace(b'"dtype"', b'"dtipe"', 1),
            "the header's entry for a.weight is malformed",
        ),
        (lambda data: data.replace(b"[0,256]", b"[9,256]"), "a.weight has 247 bytes, its shape"),
        (lambda data: data.replace(b"[0,256]", b"[256,0]"), "the header's entry for a.weight is malformed"),
    ],
)
def test_damage_is_named(damage: Callable[[bytes], bytes], message: str, path: Path) -> None:
    damaged = damage(path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=message) as caught:
        TensorFile(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"w\.safetensors cannot be read: No such file or directory"):
        TensorFile(tmp_path / "w.safetensors")


def test_an_unknown_dtype_matters_only_when_it_is_read(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"I32"', b'"F8?"'))
    file = TensorFile(path)
    np.testing.assert_array_equal(file.read("a.weight"), ARRAYS["a.weight"])
    with pytest.raises(CheckpointError, match=r"d\.scalar has dtype F8\?, which onechip does not read"):
        file.read("d.scalar")


def test_a_full_disk_leaves_no_file_behind(tmp_path: Path) -> None:
    def pieces() -> Iterator[np.ndarray]:
        yield np.zeros(4, np.float32)
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"w\.safetensors cannot be written: No space left on device"):
        write_tensors(tmp_path / "w.safetensors", {"a": TensorInfo("F32", (8,))}, pieces())
    assert not list(tmp_path.iterdir())


def test_pieces_must_add_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pieces have 16 bytes, the tensors 32"):
        write_tensors(tmp_path / "w.safetensors", {"a": TensorInfo("F32", (8,))}, [np.zeros(4, np.float32)])
    assert not list(tmp_path.iterdir())
