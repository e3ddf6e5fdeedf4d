"""The library is found, tells what it is, and fails in one sentence where it cannot be used."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

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
def test_it_is_built_from_these_sources() -> None:
    """Fails when the kernels' sources were changed after the library was built: `make native`."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "setup.py")
    assert spec is not None
    source = (ROOT / "setup.py").read_text().rpartition("\nsetup(")[0]
    names: dict[str, object] = {"__file__": str(ROOT / "setup.py")}
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        exec(compile(source, "setup.py", "exec"), names)
        assert library.build_id() == names["sources_id"]()  # type: ignore[operator]
    finally:
        os.chdir(before)


@built
def test_it_says_what_it_computes_with() -> None:
    assert library.instruction_set() in ("avx2", "avx512_vnni", "avx512_bf16", None)
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
