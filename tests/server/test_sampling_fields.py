"""Penalties, bias, bad words and allowed tokens: what each protocol's fields become for the engine."""

from __future__ import annotations

import pytest

from onechip.engine.types import MAX_LOGIT_BIAS
from tests.server.scripted import CHAT, HI, TOKENIZER, error_of

TEXT = "/v1/completions"
LAST = TOKENIZER.vocab_size - 1


@pytest.mark.parametrize(
    ("path", "start"), [(CHAT, HI), (TEXT, {"prompt": "a"}), ("/v1/responses", {"input": "a"})]
)
def test_penalties_and_bias_reach_the_engine(client, engine, path, start) -> None:
    fields = {
        "frequency_penalty": -2, "presence_penalty": 0.5, "repetition_penalty": 1.3,
        "logit_bias": {"5": -100, "0": 2.5},
    }  # fmt: skip
    assert client.ask("POST", path, start | fields)[0] == 200
    sampling = engine.requests[0].sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (
        -2,
        0.5,
        1.3,
    )
    assert sampling.logit_bias == ((5, -100.0), (0, 2.5))
    assert client.ask("POST", path, start)[0] == 200
    assert not engine.requests[1].steered


def test_ollamas_options(client, engine) -> None:
    def sampling(**options):
        body = {"model": "acorn", "prompt": "a", "stream": False, "options": options}
        assert client.ask("POST", "/api/generate", body)[0] == 200
        return engine.requests[-1].sampling

    found = sampling(repeat_penalty=1.1, presence_penalty=0.5, frequency_penalty=1, repeat_last_n=-1)
    assert (found.repetition_penalty, found.presence_penalty, found.frequency_penalty) == (1.1, 0.5, 1)
    assert not sampling(
        repeat_penalty=1.1, presence_penalty=1, repeat_last_n=0
    ).adjusts  # Ollama's word for none
    assert not sampling(repeat_last_n=64).adjusts
    assert not sampling(repeat_penalty=1.0, repeat_last_n=64).adjusts


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"logit_bias": {"five": 1}}, "logit_bias", "'five'"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "'-1'"),
        ({"logit_bias": {"05": 1}}, "logit_bias", "'05'"),
        ({"logit_bias": {"٥": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {str(LAST + 1): 1}}, "logit_bias", f"ends at {LAST}"),
        ({"logit_bias": {str(id): 1 for id in range(MAX_LOGIT_BIAS + 1)}}, "logit_bias", "length <= 1024"),
        ({"allowed_token_ids": [LAST + 1]}, "allowed_token_ids", f"ends at {LAST}"),
        ({"allowed_token_ids": []}, "allowed_token_ids", "length >= 1"),
        ({"bad_words": [""]}, "bad_words[0]", "length >= 1"),
        ({"bad_words": "x"}, "bad_words", "array"),
    ],
)
def test_refusals_name_field_and_value(client, engine, fields, param, words) -> None:
    error = error_of(client.ask("POST", CHAT, HI | fields), 400)
    assert error["param"] == param
    assert words in error["message"]
    assert engine.requests == []


def test_bad_words_are_not_said_as_they_stand_nor_behind_a_blank(client, engine) -> None:
    word = "you"
    for spelled in (word, " " + word):
        ids = TOKENIZER.encode(spelled)
        engine.windows = [[*TOKENIZER.encode("Hello"), *ids, 106]]
        assert word in client.ask("POST", CHAT, HI)[1]["choices"][0]["message"]["content"]
        body = HI | {"bad_words": [word], "return_token_ids": True, "max_tokens": 9}
        said = client.ask("POST", CHAT, body)[1]["choices"][0]["token_ids"]
        starts = range(len(said) - len(ids) + 1)
        assert said[0] == TOKENIZER.encode("Hello")[0]
        assert ids not in [said[start : start + len(ids)] for start in starts]


def test_a_bad_word_of_several_tokens_is_stopped_at_its_last(client, engine) -> None:
    word = next(word for word in ("Montpelier", "xylophone") if len(TOKENIZER.encode(word)) > 1)
    ids = TOKENIZER.encode(word)
    engine.windows = [[*ids, 106]]
    body = HI | {"bad_words": [word], "return_token_ids": True, "max_tokens": len(ids)}
    said = client.ask("POST", CHAT, body)[1]["choices"][0]["token_ids"]
    assert said[: len(ids) - 1] == ids[:-1]
    assert said[len(ids) - 1] != ids[-1]


def test_only_allowed_tokens_are_said_by_every_choice(client, engine) -> None:
    hello = TOKENIZER.encode("Hello")[0]
    body = HI | {"allowed_token_ids": [hello, 9], "max_tokens": 4, "n": 2, "return_token_ids": True}
    choices = client.ask("POST", CHAT, body)[1]["choices"]
    assert [choice["token_ids"] for choice in choices] == [[hello, *sorted([9, 9, 9])]] * 2
    assert [choice["finish_reason"] for choice in choices] == ["length"] * 2  # no stop token is among them
    guides = [guide for request in engine.requests for guide in request.guides]
    assert len(guides) == len(set(map(id, guides))) == 2  # each choice has its own


def test_bans_that_leave_nothing_are_refused_or_end_the_answer_with_a_reason(client, engine) -> None:
    hello = TOKENIZER.encode("Hello")
    body = HI | {"allowed_token_ids": hello, "bad_words": ["Hello"]}
    assert error_of(client.ask("POST", CHAT, body), 400)["param"] == "bad_words"
    body = HI | {"allowed_token_ids": [106, *hello], "bad_words": ["Hello"], "min_tokens": 3}
    assert error_of(client.ask("POST", CHAT, body), 400)["param"] == "min_tokens"
    assert engine.requests == []
    assert client.ask("POST", CHAT, body | {"min_tokens": 0})[0] == 200
    assert client.ask("POST", CHAT, body | {"ignore_eos": True, "max_tokens": 4})[0] == 200
    # What cannot go on behind some token is found out there.
    first, second = TOKENIZER.encode("zz")
    assert first == second
    body = HI | {"allowed_token_ids": [first], "bad_words": ["zz"], "max_tokens": 9}
    error = error_of(client.ask("POST", CHAT, body), 400)
    assert "bad_words" in error["message"]
    with client.send("POST", CHAT, body) as response:
        assert response.headers["Retry-After"] is None
    sent = client.stream(CHAT, body)
    assert sent[-1]["error"]["type"] == "invalid_request_error"
