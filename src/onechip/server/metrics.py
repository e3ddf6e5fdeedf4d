"""The engine's counters and the requests' times -> Prometheus text, under the names that vLLM uses."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from onechip.engine.types import EngineStats

_TTFT_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
_ITL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10)
_E2E_S = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


class Histogram:
    """Counts of values by bucket. `prometheus_client`'s own takes one value at a time; a window has many."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add `value` as often as `count` says."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def family(self, model: str) -> HistogramMetricFamily:
        family = HistogramMetricFamily(self.name, self._text, labels=["model_name"])
        buckets, total = [], 0
        for bound, count in zip(
            (*(str(float(bound)) for bound in self._bounds), "+Inf"), self._counts, strict=True
        ):
            total += count
            buckets.append((bound, total))
        family.add_metric([model], buckets, self._sum)
        return family


class RequestTimer:
    """The times of one request, from its arrival on.

    Attributes:
        arrived, first, last: of the request and of its first and latest tokens, in seconds of perf_counter;
            None before there are any.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        """The request has come.

        Args:
            metrics: where its times and tokens count; None: nowhere.
        """
        self._metrics = metrics
        self.arrived = time.perf_counter()
        self.first: float | None = None
        self.last: float | None = None

    def on_tokens(self, count: int) -> None:
        """`count` tokens came; the time since those before them is shared out evenly."""
        if not count:
            return
        now = time.perf_counter()
        before, self.last = self.last, now
        if self.first is None:
            self.first = now
        if self._metrics is None:
            return
        if before is None:
            self._metrics.ttft.observe(now - self.arrived)
        else:
            self._metrics.itl.observe((now - before) / count, count)

    def on_end(self, reason: str, prompt_tokens: int, output_tokens: int) -> None:
        """The request ended: stop, length, tool_calls, abort (its client went away) or error."""
        if self._metrics is None:
            return
        self._metrics.ended[reason] += 1
        self._metrics.e2e.observe(time.perf_counter() - self.arrived)
        self._metrics.prompt.observe(prompt_tokens)
        self._metrics.output.observe(output_tokens)


class Metrics(Collector):
    """All that /metrics shows. Changed only on the loop's thread.

    Attributes:
        stats: where the engine's numbers come from; None until it is ready.
        ended: requests by the reason why they ended.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.stats: Callable[[], EngineStats] | None = None
        self.ended: Counter[str] = Counter(stop=0, length=0, tool_calls=0, abort=0, error=0)
        self.ttft = Histogram("vllm:time_to_first_token_seconds", "From request to first token.", _TTFT_S)
        self.itl = Histogram("vllm:inter_token_latency_seconds", "Between tokens of a request.", _ITL_S)
        self.e2e = Histogram("vllm:e2e_request_latency_seconds", "From request to last token.", _E2E_S)
        self.prompt = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.output = Histogram("vllm:request_generation_tokens", "Output tokens of a request.", _TOKENS)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        if self.stats is not None:
            yield from self._engine_families(self.stats())
        ended = CounterMetricFamily(
            "vllm:request_success", "Requests by how they ended.", labels=["model_name", "finished_reason"]
        )
        for reason, count in self.ended.items():
            ended.add_metric([self._model, reason], count)
        yield ended
        for histogram in (self.ttft, self.itl, self.e2e, self.prompt, self.output):
            yield histogram.family(self._model)

    def _engine_families(self, stats: EngineStats) -> Iterable[Metric]:
        for name, text, value in (
            ("vllm:num_requests_running", "Requests that hold a slot.", stats.running),
            ("vllm:num_requests_waiting", "Requests that wait for a slot.", stats.waiting),
            ("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", stats.cache_used),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        for name, text, total in (
            ("vllm:prompt_tokens", "Prompt tokens computed.", stats.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", stats.output_tokens),
            ("vllm:prefix_cache_queries", "Prompt tokens looked for in the cache.", stats.prefix_queries),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", stats.prefix_hits),
            ("onechip:compiles_after_warmup", "Programs compiled after ready.", stats.compiles_after_warmup),
        ):
            counter = CounterMetricFamily(name, text, labels=["model_name"])
            counter.add_metric([self._model], total)
            yield counter
