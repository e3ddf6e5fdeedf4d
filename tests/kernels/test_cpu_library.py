"""The library is found, tells what it is, and fails in one sentence where it cannot be used."""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
import setuptools

from onechip.kernels.cpu import library

ROOT = Path(__file__).parents[2]
built = pytest.mark.skipif(not library.path().exists(), reason="the kernels are not built here")


@pytest.fixture
def fresh() -> Iterator[None]:
    """The library as if it had not been loaded yet."""
    library.load.cache_clear()
    library.register.cache_clear()
    yield
    library.load.cache_clear()
    library.register.cache_clear()


@built
def test_it_is_built_from_these_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when sources of the kernels were changed after the library was built: `make native`."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    assert library.build_id() == runpy.run_path("setup.py")["sources_id"]()


@built
def test_it_says_what_it_computes_with() -> None:
    assert library.instruction_set() in ("avx2", "avx512_vnni", "avx512_bf16", "amx", None)
    assert 1 <= library.threads() <= len(os.sched_getaffinity(0))


@built
@pytest.mark.usefixtures("fresh")
def test_every_kernel_is_registered() -> None:
    assert library.available() is None or library.instruction_set() is None
    library.register()
    library.register()  # JAX refuses a name that is registered to something else
    x = jax.ShapeDtypeStruct((1,), np.float32)
    for name in library.TARGETS:
        with pytest.raises(Exception, match=r"(?i)wrong number|argument|attribute|operand"):
            jax.ffi.ffi_call(name, x)()


@pytest.mark.usefixtures("fresh")
def test_a_library_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "path", lambda: tmp_path / "_native.so")
    assert library.available() == (
        "the kernels are not built: that takes Linux on x86-64 and g++ when onechip is installed, "
        "or `make native` later."
    )
    with pytest.raises(library.LibraryError, match="not built"):
        library.load()
    (tmp_path / "_native.so").write_bytes(b"no library")
    told = library.available()
    assert told is not None
    assert "cannot be loaded" in told
    assert "make native" in told


@built
@pytest.mark.usefixtures("fresh")
def test_a_kernel_that_is_missing_or_refused_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unsupported version")

    monkeypatch.setattr(library, "instruction_set", lambda: "avx2")
    monkeypatch.setattr(library, "TARGETS", {"onechip_matmul": "OnechipNothing"})
    assert "has no OnechipNothing" in str(library.available())
    monkeypatch.setattr(library, "TARGETS", {"onechip_matmul": "OnechipMatmul"})
    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    assert "does not take onechip_matmul (unsupported version)" in str(library.available())


@built
@pytest.mark.usefixtures("fresh")
def test_a_processor_that_lacks_instructions_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "instruction_set", lambda: None)
    assert library.available() == "this processor lacks AVX2, FMA or F16C, which the kernels need."


@built
def test_a_number_of_threads_is_checked() -> None:
    with pytest.raises(ValueError, match="0 threads"):
        library.set_threads(0)
