"""The compiled kernels: where they are, whether they can be used here, and their names in JAX.

setup.py builds the library from native/*.cc into this folder, when the package is installed or by
`make native`.
"""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from pathlib import Path

import jax
import jaxlib.version

from onechip.kernels.cpu import quota

TARGETS = {
    "onechip_matmul": "OnechipMatmul",
    "onechip_matmul_add": "OnechipMatmulAdd",
    "onechip_mlp": "OnechipMlp",
    "onechip_add_ple": "OnechipAddPle",
    "onechip_rows": "OnechipRows",
    "onechip_greedy": "OnechipGreedy",
    "onechip_draw": "OnechipDraw",
    "onechip_attend": "OnechipAttend",
}
"""Name that programs call -> symbol of the library."""


class LibraryError(Exception):
    """The kernels cannot be used; the message is one sentence that says why."""


def path() -> Path:
    """Where the library is, if it has been built for this Python."""
    return Path(__file__).with_name(f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")


@functools.cache
def load() -> ctypes.CDLL:
    """The library, loaded once; calls through it let go of Python's lock.

    Raises:
        LibraryError: it has not been built, or the system cannot load it.
    """
    if not path().exists():
        raise LibraryError(
            "the kernels are not built: that takes Linux on x86-64 and g++ when onechip is installed, "
            "or `make native` later."
        )
    try:
        library = ctypes.CDLL(str(path()))
    except OSError as error:
        raise LibraryError(
            f"the kernels cannot be loaded ({error}): `make native` builds them anew."
        ) from None
    for name in ("onechip_instruction_set", "onechip_sources"):
        getattr(library, name).restype = ctypes.c_char_p
    most = quota.cpu_quota()
    if most is not None:
        library.onechip_limit_threads(most)
    return library


@functools.cache
def register() -> None:
    """Make the kernels known to JAX: before a program that calls them is compiled, or loaded from the cache.

    Raises:
        LibraryError: the library cannot be loaded, lacks a kernel, or speaks another FFI than this jaxlib.
    """
    library = load()
    for name, symbol in TARGETS.items():
        if not hasattr(library, symbol):
            raise LibraryError(
                f"{path()} has no {symbol}: it is of other sources, `make native` builds it anew."
            )
        try:
            capsule = jax.ffi.pycapsule(getattr(library, symbol))  # type: ignore[no-untyped-call]
            jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        except Exception as error:
            raise LibraryError(
                f"jaxlib {jaxlib.version.__version__} does not take {name} ({error}): "
                "`make native` builds it anew."
            ) from error


def available() -> str | None:
    """None if the kernels can be used here, and are registered; otherwise one sentence that says why not."""
    try:
        if instruction_set() is None:
            return "this processor lacks AVX2, FMA or F16C, which the kernels need."
        register()
    except LibraryError as error:
        return str(error)
    return None


def instruction_set() -> str | None:
    """What the kernels compute with, such as "avx512_vnni"; None if this processor has not enough."""
    name: bytes | None = load().onechip_instruction_set()
    return name.decode() if name is not None else None


def threads() -> int:
    """How many threads the kernels work with; starts them."""
    return int(load().onechip_threads())


def set_threads(count: int) -> None:
    """Ask for so many threads instead of one for each core that this process may use,
    as far as its control group's quota (quota.py) goes.

    Raises:
        ValueError: the count is less than 1.
        RuntimeError: the threads have already started.
    """
    if count < 1:
        raise ValueError(f"{count} threads cannot work: at least 1 is needed")
    if not load().onechip_set_threads(count):
        raise RuntimeError(f"the number of threads is set before they start; {threads()} are running")


def build_id() -> str:
    """16 hex digits: the hash of the sources that the library was built from."""
    name: bytes = load().onechip_sources()
    return name.decode()
