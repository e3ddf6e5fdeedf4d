"""/metrics: vLLM's names, counts by bucket, and times that belong to tokens."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from onechip.engine.types import EngineStats
from onechip.server.metrics import Metrics, RequestTimer


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """(name, the label besides the model's) -> value."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            assert sample.labels.pop("model_name") == "m"
            found[sample.name, "".join(sample.labels.values())] = sample.value
    return found


def test_engine_numbers_under_vllms_names() -> None:
    metrics = Metrics("m")
    assert ("vllm:num_requests_running", "") not in samples(metrics)
    metrics.stats = lambda: EngineStats(3, 4, 0.5, 100, 200, 7, 0, 400, 300)
    found = samples(metrics)
    assert found["vllm:num_requests_running", ""] == 3
    assert found["vllm:num_requests_waiting", ""] == 4
    assert found["vllm:kv_cache_usage_perc", ""] == 0.5
    assert found["vllm:prompt_tokens_total", ""] == 100
    assert found["vllm:generation_tokens_total", ""] == 200
    assert found["vllm:prefix_cache_queries_total", ""] == 400
    assert found["vllm:prefix_cache_hits_total", ""] == 300
    assert found["onechip:compiles_after_warmup_total", ""] == 0


def test_a_request_is_timed_by_token(monkeypatch) -> None:
    now = 100.0
    monkeypatch.setattr("onechip.server.metrics.time.perf_counter", lambda: now)
    metrics = Metrics("m")
    timer = RequestTimer(metrics)
    timer.on_tokens(0)  # an event without tokens is no first token
    now += 0.3
    timer.on_tokens(1)
    now += 0.08
    timer.on_tokens(8)
    timer.on_end("stop", 20, 9)
    found = samples(metrics)
    assert found["vllm:time_to_first_token_seconds_bucket", "0.25"] == 0
    assert found["vllm:time_to_first_token_seconds_bucket", "0.5"] == 1
    assert found["vllm:inter_token_latency_seconds_bucket", "0.005"] == 0
    assert found["vllm:inter_token_latency_seconds_bucket", "0.025"] == 8
    assert found["vllm:inter_token_latency_seconds_count", ""] == 8
    assert abs(found["vllm:inter_token_latency_seconds_sum", ""] - 0.08) < 1e-9
    assert found["vllm:e2e_request_latency_seconds_bucket", "0.5"] == 1
    assert found["vllm:request_prompt_tokens_sum", ""] == 20
    assert found["vllm:request_generation_tokens_bucket", "10.0"] == 1
    assert found["vllm:request_success_total", "stop"] == 1
    assert found["vllm:request_success_total", "abort"] == 0
