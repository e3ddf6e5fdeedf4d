"""An engine seen from outside while it is measured: its /metrics, its log, who listens at its port.

Two sights, one before a cell and one after, tell what happened between; validity.py judges it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from onechip.ladder.client import fetch
from onechip.ladder.engines.port import Listener, listeners
from onechip.ladder.engines.process import EngineProcess
from onechip.ladder.target import Target

METRICS_S = 10.0
COMPILED = ("onechip:compiles_after_warmup_total",)
"""Counters of programs compiled while serving."""
FROM_CACHE = (
    "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits_total",
    "sglang:cached_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
)
"""Counters of prompt tokens that came from a prefix cache: vLLM's new and old name, SGLang's, llama.cpp's."""
BORN = "process_start_time_seconds"
"""Wall clock at which the serving process began, as Prometheus' client libraries give it."""
COMPILING = re.compile(
    r"\b(?:re)?compil(?:ing|ation)\b|\bcaptur(?:e|ing) (?:the )?(?:cuda|device) ?graph|\bautotun(?:e|ing)\b",
    re.IGNORECASE,
)
"""How JAX (jax_log_compiles), torch, Triton, vLLM and SGLang say in their logs that they compile."""
LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Sight:
    """An engine at one moment.

    Attributes:
        counters: sum over all labels of each sample that only grows, and of BORN; None without /metrics.
        listening: processes that accept connections at its port; empty where the system does not tell, or the
            ladder did not start it.
        log_bytes: length of its log.
    """

    counters: Mapping[str, float] | None = None
    listening: frozenset[Listener] = frozenset()
    log_bytes: int = 0

    @property
    def counts_cached(self) -> bool:
        """Whether it has a counter of prompt tokens that came from a cache."""
        return any(name in (self.counters or {}) for name in FROM_CACHE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened between two sights.

    Attributes:
        compiled: programs, by the engine's counter; None if it has none.
        from_cache: prompt tokens, by the engine's counter; None if it has none.
        restarted: one sentence on how it shows; None if it was not.
        log: the first line that tells of compiling; None if there is none.
    """

    compiled: float | None = None
    from_cache: float | None = None
    restarted: str | None = None
    log: str | None = None


@dataclass
class Watch:
    """Of one engine between its start and its stop.

    Args:
        process: None where the ladder did not start it.
    """

    target: Target
    process: EngineProcess | None
    _has_metrics: bool = field(default=True, init=False)

    def look(self) -> Sight:
        if self.process is None:
            return Sight(self._counters())
        log = self.process.log
        size = log.stat().st_size if log.exists() else 0
        return Sight(self._counters(), listeners(self.process.pid, self.target.port), size)

    def since(self, before: Sight) -> Seen:
        after = self.look()
        return Seen(
            _grown(COMPILED, before, after),
            _grown(FROM_CACHE, before, after),
            _restarted(before, after),
            self._compiling(before.log_bytes),
        )

    def _counters(self) -> dict[str, float] | None:
        """Asks no more once there was no answer: most engines have no /metrics, or only by a flag."""
        if not self._has_metrics:
            return None
        try:
            response = fetch(self.target, "/metrics", timeout_s=METRICS_S)
            self._has_metrics = response.head.status == 200
            return read_counters(response.body.decode()) if self._has_metrics else None
        except (OSError, ValueError):
            self._has_metrics = False
            return None

    def _compiling(self, start: int) -> str | None:
        if self.process is None or not self.process.log.exists():
            return None
        with self.process.log.open("rb") as log:
            log.seek(start)
            text = log.read(LOG_BYTES).decode("utf-8", "replace")
        return next((line.strip() for line in text.splitlines() if COMPILING.search(line)), None)


def read_counters(text: str) -> dict[str, float]:
    """Prometheus' text format -> samples that only grow, and BORN, each summed over its labels.

    Raises:
        ValueError: it is another format.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_total") or sample.name == BORN:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _grown(names: tuple[str, ...], before: Sight, after: Sight) -> float | None:
    if before.counters is None or after.counters is None:
        return None
    grown = [
        after.counters[name] - before.counters.get(name, 0.0) for name in names if name in after.counters
    ]
    return max(0.0, *grown) if grown else None


def _restarted(before: Sight, after: Sight) -> str | None:
    gone = before.listening - after.listening
    if gone and after.listening and not before.listening & after.listening:
        return f"process {min(gone).pid}, which had its port, gave way to another"
    was, now = before.counters or {}, after.counters or {}
    if BORN in was and BORN in now and was[BORN] != now[BORN]:
        return f"its {BORN} changed"
    fallen = next(
        (name for name, value in was.items() if name != BORN and now.get(name, value) < value), None
    )
    return None if fallen is None else f"its counter {fallen} fell"
