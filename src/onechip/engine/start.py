"""From a checkpoint folder to an engine that is ready: read, plan, place, compile or load, warm up."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np

from onechip.engine import aot, placement, programs, scoring
from onechip.engine.aot import Deferred, Executable
from onechip.engine.attention import Chunk
from onechip.engine.chip import Chip
from onechip.engine.placement import Precision
from onechip.engine.plan import Plan, make_plan
from onechip.engine.prefixes import Copies
from onechip.engine.programs import Program
from onechip.engine.steering import Steering
from onechip.engine.types import NO_TOKEN, EngineConfig, Progress
from onechip.errors import CheckpointError
from onechip.kernels.choice import choose
from onechip.models.config import ModelConfig, read_config
from onechip.models.layout import Params
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import stored_kinds, weight_reader

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"


class CompileCounter:
    """Counts what XLA compiles in this process; after `ready` nothing may, but for what is `wanted`."""

    def __init__(self) -> None:
        self._heard: list[float] = []
        self._at_ready = 0
        self._here = threading.local()
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILE_EVENT and not getattr(self._here, "wanted", False):  # in the thread that compiled
            self._heard.append(duration_secs)

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """What this thread compiles meanwhile does not count."""
        self._here.wanted = True
        try:
            yield
        finally:
            self._here.wanted = False

    @property
    def total(self) -> int:
        return len(self._heard)

    def ready(self) -> None:
        self._at_ready = self.total

    @property
    def since_ready(self) -> int:
        return self.total - self._at_ready


@dataclass(slots=True)
class LoadedEngine:
    """What the engine's loop runs with. `state` is replaced by every program that runs.

    Attributes:
        why_plain: what keeps the chip's own kernels from being used, None if nothing does.
        join, forward, choose: executables. prefill, decode: executables by chunk and by row bucket.
        move: executable, None if prompts are not reused.
        score: executable, see scoring.py.
        tokenizer: whose stop ids end requests; the server reads text with it, so that it is parsed once.
    """

    config: ModelConfig
    plan: Plan
    precision: Precision
    why_plain: str | None
    chip: Chip
    params: Params
    state: programs.State
    join: Executable
    move: Executable | None
    prefill: dict[int, Executable]
    decode: dict[int, Executable]
    forward: Executable
    choose: Executable
    score: Deferred
    tokenizer: Tokenizer
    compiles: CompileCounter

    def describe(self) -> str:
        """Chip, precision and memory plan; what is slower than it could be."""
        lines = [
            f"{self.chip.kind} ({self.chip.platform}, kernels {self.precision.kernels.name}): "
            f"{self.precision.describe()}",
            self.plan.describe(),
        ]
        if self.why_plain is not None:
            lines.append(f"slower than it could be, on plain JAX: {self.why_plain}")
        return "\n".join(lines)


def load(wishes: EngineConfig, progress: Progress) -> LoadedEngine:
    """Everything between a folder and the first token.

    Raises:
        UsageError, CheckpointError, CapacityError: nothing large has been allocated when these are raised.
    """
    compiles = CompileCounter()
    progress("reading the checkpoint", 0.0)
    config = read_config(wishes.model)
    stored = stored_kinds(wishes.model, config)
    tokenizer = Tokenizer.load(wishes.model, config.eos_ids)
    chip = Chip.detect()
    kernels, why_plain = choose(chip.platform, plain=wishes.kernels == "xla")
    precision = placement.choose_precision(config, wishes.dtype, stored, chip.platform, kernels)
    weight_bytes = placement.planned_bytes(config, precision)
    plan = make_plan(config, wishes, chip, precision, weight_bytes)

    params = _load_params(wishes, config, precision, progress)
    model = config, plan, precision.kernels, params
    listing, scores = programs.listing(*model), scoring.program(*model)
    folder = _folder(wishes.cache_dir, config, plan, precision, [*listing, scores])
    executables = _load_programs(listing, folder, progress)

    progress("warming up", 0.95)
    loaded = LoadedEngine(
        config=config,
        plan=plan,
        precision=precision,
        why_plain=why_plain,
        chip=chip,
        params=params,
        state=executables["init"](),
        join=executables["join"],
        move=executables.get("move"),
        prefill={bucket: executables[f"prefill[{bucket}]"] for bucket in plan.chunk_buckets},
        decode={bucket: executables[f"decode[{bucket}]"] for bucket in plan.row_buckets},
        forward=executables["forward"],
        choose=executables["choose"],
        score=Deferred(partial(_load_later, scores, folder, compiles)),
        tokenizer=tokenizer,
        compiles=compiles,
    )
    _warm_up(loaded)
    compiles.ready()
    progress("ready", 1.0)
    return loaded


def _load_params(
    wishes: EngineConfig, config: ModelConfig, precision: Precision, progress: Progress
) -> Params:
    def on_tensor(name: str, done: int, total: int) -> None:
        progress(f"loading weights ({name})", 0.4 * done / max(total, 1))

    dense_dtype = placement.host_dtype(precision)
    read = weight_reader(wishes.model, config, dense_dtype=dense_dtype, progress=on_tensor)
    return placement.place(config, read, precision)


def _folder(
    cache_dir: Path | None,
    config: ModelConfig,
    plan: Plan,
    precision: Precision,
    listing: Sequence[Program],
) -> Path | None:
    """Where the executables of these programs are kept, None if nowhere."""
    if cache_dir is None:
        return None
    shapes = [(program.name, program.arguments) for program in listing]
    fingerprint = aot.fingerprint(config, precision.kernels.name, plan.window, shapes)
    return aot.usable(cache_dir / "executables" / fingerprint)


def _load_programs(
    listing: Sequence[Program], folder: Path | None, progress: Progress
) -> dict[str, Executable]:
    if folder is not None and not any(folder.iterdir()):
        progress("compiling for the first time (kept for the next start)", 0.45)
    executables = {}
    # XLA compiles a program mostly on one core, and lets go of Python's lock meanwhile.
    with ThreadPoolExecutor(max_workers=min(len(listing), os.cpu_count() or 1)) as pool:
        names = {pool.submit(aot.load_or_compile, program, folder): program.name for program in listing}
        for future in as_completed(names):
            executables[names[future]] = future.result()
            share = len(executables) / len(listing)
            progress(f"programs: {len(executables)} of {len(listing)}", 0.45 + 0.5 * share)
    if folder is not None:
        aot.prune(folder)
    return executables


def _load_later(program: Program, folder: Path | None, compiles: CompileCounter) -> Executable:
    """A program that a start does without."""
    with compiles.wanted():
        return aot.load_or_compile(program, folder)


def _warm_up(loaded: LoadedEngine) -> None:
    """Run the smallest program of each kind once, so that the first request finds everything paged in.

    Raises CheckpointError if what they compute is not a number.
    """
    bucket = loaded.plan.chunk_buckets[0]
    row = np.arange(bucket, dtype=np.int32)
    chunk = Chunk(tokens=0 * row, slots=0 * row, positions=row, valid=np.int32(bucket))
    loaded.state, _ = loaded.prefill[bucket](loaded.params, loaded.state, chunk)
    loaded.state = loaded.join(loaded.state, programs.joins_of((), loaded.plan.slots))
    if loaded.move is not None:
        for moves in programs.moves_of(Copies(rings=((0, 0),)), loaded.plan.slots):
            loaded.state = loaded.move(loaded.state, moves)
    bucket = loaded.plan.row_buckets[0]
    active = np.zeros(bucket, np.bool_)
    active[0] = True
    loaded.state, tokens = loaded.decode[bucket](loaded.params, loaded.state, active)
    _warm_up_steered(loaded)
    if NO_TOKEN in np.asarray(tokens)[:, 0]:
        raise CheckpointError(
            "The model's logits are not finite numbers: its weights are damaged, or too large for this "
            "dtype; fetch them again, or try --dtype f32."
        )


def _warm_up_steered(loaded: LoadedEngine) -> None:
    slots, config = loaded.plan.slots, loaded.config
    steer = Steering(slots, config.vocab, loaded.plan.context).steer(()).steer
    active = np.arange(slots) == 0
    loaded.state, scores = loaded.forward(loaded.params, loaded.state, active)
    loaded.state, _ = loaded.choose(loaded.state, scores, steer, active)
