"""A request's sampling fields, the checkpoint's defaults, and what fits in the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.errors import CheckpointError, RequestError
from onechip.models.generation import GenerationDefaults
from onechip.server.sampling import Limits, check_stream, output_limit, sampling_params, stop_strings
from onechip.server.schemas import CompletionBody, StreamOptions

DEFAULTS = GenerationDefaults(temperature=0.7, top_k=64, top_p=0.95, min_p=0.1)


def params(**fields):
    return sampling_params(CompletionBody(prompt="", **fields), DEFAULTS, max_tokens=9, vocab_size=100)


def test_defaults_come_from_the_checkpoint() -> None:
    given = params()
    assert (given.temperature, given.top_k, given.top_p, given.min_p) == (0.7, 64, 0.95, 0.1)
    assert (given.max_tokens, given.min_tokens, given.stop_token_ids, given.ignore_eos) == (9, 0, (), False)


def test_what_is_asked_for_wins_also_where_it_is_zero() -> None:
    given = params(temperature=0, top_k=0, top_p=1.0, min_p=0, ignore_eos=True, stop_token_ids=[5, 5, 6])
    assert (given.temperature, given.top_k, given.top_p, given.min_p) == (0, 0, 1.0, 0)
    assert (given.ignore_eos, given.stop_token_ids) == (True, (5, 6))
    assert params(top_k=-1).top_k == 0


def test_seeds() -> None:
    assert params(seed=7).seed == 7
    assert params(seed=2**32 - 1).seed == 2**32 - 1
    assert all(0 <= params(seed=seed).seed < 2**32 for seed in (-1, -(2**63), 2**63 - 1, 2**32))
    edges = (0, -1, 1, 2**32, -2, 2**32 + 1, 2**40, -(2**40) - 1, 2**63 - 1, -(2**63))
    assert len({params(seed=seed).seed for seed in edges}) == len(edges)
    assert len({params().seed for _ in range(5)}) > 1


def test_fields_that_do_not_go_together() -> None:
    with pytest.raises(RequestError, match="min_tokens is 10, but at most 9"):
        params(min_tokens=10)
    with pytest.raises(RequestError, match="stop_token_ids has 100; the vocabulary ends at 99"):
        params(stop_token_ids=[100])
    options = StreamOptions(include_usage=True)
    with pytest.raises(RequestError, match="stream_options needs stream"):
        check_stream(CompletionBody(prompt="", stream_options=options))
    check_stream(CompletionBody(prompt="", stream_options=options, stream=True))


def test_the_output_fits_in_the_context() -> None:
    assert output_limit(Limits(None, "max_tokens"), 60, 100, 100) == 40
    assert output_limit(Limits(40, "max_tokens"), 60, 100, 100) == 40
    with pytest.raises(
        RequestError, match=r"max_tokens is 41, .* 60 of the context's 100 .* ask for 40"
    ) as caught:
        output_limit(Limits(41, "max_tokens", exact=True), 60, 100, 100)
    assert output_limit(Limits(41, "max_tokens"), 60, 100, 100) == 40
    assert (caught.value.param, caught.value.code) == ("max_tokens", "context_length_exceeded")
    with pytest.raises(RequestError, match=r"prompt is too long: 100 tokens > 99, .* is 100 .*prompt\.$"):
        output_limit(Limits(1, "max_tokens"), 100, 100, 100)
    assert output_limit(Limits(0, "max_tokens"), 100, 100, 100) == 0  # a prompt alone, to be scored
    with pytest.raises(RequestError, match="prompt is too long: 101 tokens > 100"):
        output_limit(Limits(0, "max_tokens"), 101, 100, 100)


def test_a_larger_context_is_advised_only_where_the_model_takes_it() -> None:
    with pytest.raises(RequestError, match=r"a larger --context \(this model takes 300\)\.$"):
        output_limit(Limits(1, "max_tokens"), 100, 100, 300)


def test_stop_strings_are_a_list() -> None:
    assert stop_strings(CompletionBody(prompt="")) == []
    assert stop_strings(CompletionBody(prompt="", stop="a")) == ["a"]
    assert stop_strings(CompletionBody(prompt="", stop=["a", "b"])) == ["a", "b"]


def test_generation_config(tmp_path: Path) -> None:
    assert GenerationDefaults.load(tmp_path) == GenerationDefaults(1.0, 0, 1.0, 0.0, ())
    path = tmp_path / "generation_config.json"
    path.write_text(
        '{"do_sample": true, "temperature": 0.5, "top_k": 64, "top_p": 0.9, "eos_token_id": [1, 106]}'
    )
    assert GenerationDefaults.load(tmp_path) == GenerationDefaults(0.5, 64, 0.9, 0.0, (1, 106))
    path.write_text('{"do_sample": false, "eos_token_id": 1}')
    assert GenerationDefaults.load(tmp_path) == GenerationDefaults(0.0, eos_ids=(1,))
    path.write_text('{"temperature": "hot"}')
    with pytest.raises(CheckpointError, match="temperature"):
        GenerationDefaults.load(tmp_path)
