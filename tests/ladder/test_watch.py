"""What shows of an engine from outside: counters, its log, who listens."""

from __future__ import annotations

import pytest

from onechip.ladder.engines.port import Listener
from onechip.ladder.validity import happened
from onechip.ladder.watch import COMPILING, Seen, Sight, _restarted, read_counters

TEXT = """# HELP vllm:prefix_cache_hits Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 32.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 16.0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 7.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.5e9
"""


def test_counters_are_summed_over_their_labels_and_gauges_left_out() -> None:
    assert read_counters(TEXT) == {"vllm:prefix_cache_hits_total": 48.0, "process_start_time_seconds": 1.5e9}
    assert Sight(read_counters(TEXT)).counts_cached
    assert not Sight({"x_total": 1.0}).counts_cached
    with pytest.raises(ValueError, match="html"):
        read_counters("<html>not found</html>")


@pytest.mark.parametrize(
    "line",
    [
        "WARNING Compiling jit(decode) with global shapes and types [ShapedArray(float32[8])].",
        "Finished XLA compilation of jit(prefill) in 1.2 sec",
        "INFO [backends.py] Compiling a graph for dynamic shape takes 5.1 s",
        "Recompiling function forward in model.py:12",
        "Capture cuda graph begin. This can take up to several minutes.",
        "Triton autotuning for function _fwd_kernel finished",
    ],
)
def test_lines_that_tell_of_compiling(line: str) -> None:
    assert COMPILING.search(line)


@pytest.mark.parametrize(
    "line",
    [
        'INFO: 127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK',
        "gcc compiled binary of llama-server, commit 8a1b",
        "Avg prompt throughput: 120.1 tokens/s, GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%",
    ],
)
def test_lines_that_do_not(line: str) -> None:
    assert not COMPILING.search(line)


def test_a_restart_shows_by_its_process_its_birth_or_a_counter_that_fell() -> None:
    old, new, helper = Listener(7, 1.0), Listener(9, 2.0), Listener(8, 1.5)
    assert _restarted(Sight(None, frozenset({old})), Sight(None, frozenset({new}))) == (
        "process 7, which had its port, gave way to another"
    )
    assert _restarted(Sight(None, frozenset({old, helper})), Sight(None, frozenset({old}))) is None
    assert _restarted(Sight(None, frozenset({old})), Sight(None, frozenset())) is None
    assert _restarted(Sight({"a_total": 5.0}), Sight({"a_total": 2.0})) == "its counter a_total fell"
    assert _restarted(Sight({"a_total": 5.0}), Sight({"a_total": 5.0, "b_total": 1.0})) is None
    assert _restarted(Sight({"a_total": 5.0}), Sight(None)) is None


def test_tokens_from_a_cache_may_be_those_that_all_prompts_share() -> None:
    assert happened(Seen(from_cache=40.0), 4, 6) == []
    assert len(happened(Seen(from_cache=41.0), 4, 6)) == 1
    assert happened(Seen(from_cache=1000.0), 4, None) == [], "prompts that are not meant to be unique"
    assert happened(Seen(), 4, 6) == []
