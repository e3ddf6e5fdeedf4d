"""Builds the CPU's kernels, onechip/kernels/cpu/_native*.so; all else about the package is in pyproject.toml.

The library speaks XLA's FFI, whose headers are jaxlib's, and no Python. Where it cannot be built (no
compiler, not an x86-64 Linux) the package installs without it, and computes in plain JAX.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/onechip/kernels/cpu/native")
SOURCES = sorted(NATIVE.glob("*.cc"))
HEADERS = sorted([*NATIVE.glob("*.h"), NATIVE / "exports.map"])

FLAGS = [
    "-std=c++20",
    "-ffp-contract=off",  # every instruction set fuses where the source says so, and nowhere else
    "-fno-math-errno",
    "-pthread",
    "-Wall",
    "-MMD",
]


def sources_id() -> str:
    """Hash of the sources, which the library carries: `library.build_id`."""
    digest = hashlib.sha256()
    for path in [*SOURCES, *HEADERS]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class BuildNative(build_ext):
    """Compiles the files side by side, and only those that have changed."""

    def finalize_options(self) -> None:
        if self.build_temp is None:  # pip's choice is thrown away, and with it what need not be compiled anew
            self.build_temp = "build/native"
        super().finalize_options()

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile
        # setuptools would look at the library's time alone, and miss what was written while it was built.
        anew, self.force = self.force, True

        def compile_one(source: str, **options) -> list[str]:
            (target,) = self.compiler.object_filenames([source], output_dir=options["output_dir"])
            speed = ["-O1", "-g"] if self.debug else ["-O3", "-g0"]
            options["extra_postargs"] = [*options["extra_postargs"], *speed]
            if Path(source).name == "library.cc":
                options["extra_postargs"].append(f'-DONECHIP_SOURCES="{sources_id()}"')
            elif not anew and is_current(Path(target)):
                return [target]
            return compile_some([source], **options)

        def compile_all(sources: list[str], **options) -> list[str]:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                made = pool.map(lambda source: compile_one(source, **options), sources)
                return [target for targets in made for target in targets]

        self.compiler.compile = compile_all
        super().build_extensions()


def is_current(target: Path) -> bool:
    """Whether an object is newer than all that it was made of, as the compiler noted it (-MMD)."""
    notes = target.with_suffix(".d")
    if not (target.exists() and notes.exists()):
        return False
    made_of = [Path(__file__), *map(Path, notes.read_text().replace("\\\n", " ").split()[1:])]
    return all(path.exists() and path.stat().st_mtime < target.stat().st_mtime for path in made_of)


def extensions() -> list[Extension]:
    jaxlib = importlib.util.find_spec("jaxlib")
    if jaxlib is None or sys.platform != "linux" or platform.machine() != "x86_64":
        return []
    # As system headers, whose warnings are not ours.
    headers = [f"-isystem{path}/include" for path in jaxlib.submodule_search_locations or ()]
    return [
        Extension(
            "onechip.kernels.cpu._native",
            [str(path) for path in SOURCES],
            depends=[str(path) for path in HEADERS],
            extra_compile_args=[*FLAGS, *headers],
            extra_link_args=["-pthread", f"-Wl,--version-script={NATIVE / 'exports.map'}"],
            language="c++",
            # Whoever asks for the library by name (make native) wants to see why it cannot be built.
            optional="build_ext" not in sys.argv,
        )
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildNative})
