"""Sampling fields against `onechip serve acorn`: what they promise of answers, on the model itself."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ollama
import openai
import pytest

from onechip.models import decoder
from onechip.models.config import read_config
from onechip.models.weights import load_weights
from onechip.server.sampling import choice_seed
from tests.server.process import PROBLEM, Process
from tests.server.scripted import ACORN, CHAT, TOKENIZER

TEXT = "/v1/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": PROBLEM}]}
PROMPT = TOKENIZER.encode(f"<bos><|turn>user\n{PROBLEM}<turn|>\n<|turn>model\n")
HOT: dict[str, Any] = {"temperature": 2.0, "top_k": 0, "top_p": 1.0}
LONGEST = 128
NEAR = 0.15
"""How far the engine's log-probabilities, in bf16 and int8, may be from those of float32."""


@cache
def forward() -> Any:
    """Tokens [LONGEST] -> float32 logits [LONGEST, V], compiled once."""
    config, dtype = read_config(ACORN), jnp.dtype(jnp.float32)
    params = jax.tree.map(jnp.asarray, load_weights(ACORN, config, dense_dtype=dtype))
    positions = jnp.arange(LONGEST)[None]
    return jax.jit(lambda tokens: decoder.forward(config, params, tokens[None], positions, dtype=dtype)[0])


def logits_of(ids: list[int]) -> np.ndarray:
    """Float32 logits behind each of `ids`, [len(ids), V], by the whole forward pass."""
    tokens = np.zeros(LONGEST, np.int32)  # what stands behind a token is nothing to it
    tokens[: len(ids)] = ids
    return np.asarray(forward()(tokens), float)[: len(ids)]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def said(reply: Any) -> list[str]:
    return [choice["message"]["content"] for choice in reply["choices"]]


def test_choices_are_what_requests_with_their_seeds_are(served: Process) -> None:
    together = said(served.ask(CHAT, ASK | HOT | {"seed": 5, "n": 3}))
    apart = [said(served.ask(CHAT, ASK | HOT | {"seed": choice_seed(5, place)}))[0] for place in range(3)]
    assert together == apart
    assert len(set(together)) == 3
    assert apart[0] == said(served.ask(CHAT, ASK | HOT | {"seed": 5}))[0]


def test_the_best_of_four_is_the_likeliest_of_four(served: Process) -> None:
    body = {"prompt": PROMPT, "seed": 5, "max_tokens": 40} | HOT
    all_four = served.ask(TEXT, body | {"n": 4, "logprobs": 0})["choices"]
    means = [np.mean(choice["logprobs"]["token_logprobs"]) for choice in all_four]
    best = served.ask(TEXT, body | {"best_of": 4})
    assert [choice["text"] for choice in best["choices"]] == [all_four[int(np.argmax(means))]["text"]]
    assert best["usage"]["completion_tokens"] == sum(len(choice["logprobs"]["tokens"]) for choice in all_four)


def test_log_probabilities_are_of_the_temperature_s_distribution(served: Process) -> None:
    for temperature in (0, 2.0):
        body = ASK | {"temperature": temperature, "top_k": 1, "logprobs": True, "top_logprobs": 20}
        body |= {"return_token_ids": True, "max_tokens": 30}
        reply = served.ask(CHAT, body)
        [choice] = reply["choices"]
        ids = [*reply["prompt_token_ids"], *choice["token_ids"]]
        truth = log_softmax(logits_of(ids)[len(PROMPT) - 1 : -1] / (temperature or 1))
        for row, id, told in zip(truth, choice["token_ids"], choice["logprobs"]["content"], strict=True):
            top = [one["logprob"] for one in told["top_logprobs"]]
            assert told["token"] == told["top_logprobs"][0]["token"]  # top_k is 1: the likeliest is chosen
            assert told["logprob"] == top[0] == pytest.approx(row[id], abs=NEAR)
            assert top == sorted(top, reverse=True)
            share = math.fsum(map(math.exp, top))
            assert share < 1 + 1e-5
            assert share == pytest.approx(np.exp(np.sort(row)[-20:]).sum(), abs=0.05)


def test_a_prompt_s_log_probabilities_are_teacher_forced(served: Process) -> None:
    """Of an answer that the model would give, and of one that it would not, with stop tokens inside."""
    answer = TOKENIZER.encode("First 5 * 7 = 35 cards.\nThen 35 + 10 = 45 cards.\n#### 45")
    prompts = [[*PROMPT, *answer], [*PROMPT, *TOKENIZER.encode("5 * 7 = 36"), 106, 7, 1, 9]]
    body = {"prompt": prompts, "echo": True, "logprobs": 5, "max_tokens": 0, "prompt_logprobs": 5}
    for ids, choice in zip(prompts, served.ask(TEXT, body)["choices"], strict=True):
        truth = log_softmax(logits_of(ids))[np.arange(len(ids) - 1), ids[1:]]
        assert choice["logprobs"]["token_logprobs"][0] is None
        told = np.array(choice["logprobs"]["token_logprobs"][1:], float)
        # What the model finds all but impossible is a difference of large numbers.
        np.testing.assert_allclose(told, truth, atol=NEAR, rtol=0.1)
        places = choice["prompt_logprobs"][1:]
        own = [place[str(id)] for id, place in zip(ids[1:], places, strict=True)]
        assert [place["logprob"] for place in own] == told.tolist()
        logits = logits_of(ids)[:-1]
        ranks = 1 + np.sum(logits > logits[np.arange(len(ids) - 1), ids[1:]][:, None], axis=1)
        assert [place["rank"] for place in own] == pytest.approx(ranks, rel=0.2, abs=1)  # rounding, far down
    # How an answer is chosen does not change how likely its prompt is, to the bit.
    asked = {"prompt": prompts[0], "prompt_logprobs": 5, "max_tokens": 3, "presence_penalty": 2} | HOT
    whole = served.ask(TEXT, body)["choices"][0]["prompt_logprobs"]
    assert served.ask(TEXT, asked)["choices"][0]["prompt_logprobs"] == whole


@pytest.mark.parametrize(
    "fields",
    [
        {"frequency_penalty": 1.5},
        {"presence_penalty": 2.0},
        {"repetition_penalty": 1.5},
        {
            "frequency_penalty": -1.0,
            "presence_penalty": 1.0,
            "repetition_penalty": 0.8,
            "logit_bias": {"9": 5},
        },
    ],
)
def test_penalties_are_what_their_definitions_say(served: Process, fields: dict[str, Any]) -> None:
    """On a hot answer, since acorn is so sure of a cold one that penalties change nothing."""
    told_of = {"logprobs": True, "top_logprobs": 5, "return_token_ids": True}
    body = ASK | fields | told_of | {"temperature": 2, "seed": 5, "max_tokens": 40, "ignore_eos": True}
    choice = served.ask(CHAT, body)["choices"][0]
    answer: list[int] = choice["token_ids"]
    logits = logits_of([*PROMPT, *answer])[len(PROMPT) - 1 : -1]
    changes = []
    for place, (row, id, told) in enumerate(zip(logits, answer, choice["logprobs"]["content"], strict=True)):
        counts, unchanged = Counter(answer[:place]), log_softmax(row / 2)
        for seen in {*PROMPT, *counts}:
            penalty = fields.get("repetition_penalty", 1)
            row[seen] = row[seen] / penalty if row[seen] > 0 else row[seen] * penalty
        for seen, count in counts.items():
            row[seen] -= fields.get("frequency_penalty", 0) * count + fields.get("presence_penalty", 0)
        for other, bias in fields.get("logit_bias", {}).items():
            row[int(other)] += bias
        found = log_softmax(row / 2)
        assert told["logprob"] == pytest.approx(found[id], abs=NEAR)
        likeliest = [one["logprob"] for one in told["top_logprobs"]]
        np.testing.assert_allclose(likeliest, np.sort(found)[:-6:-1], atol=NEAR)
        changes.append(abs(found - unchanged).max())
    assert max(changes) > 3 * NEAR  # else there was nothing to see


def test_a_bias_of_100_forces_and_of_minus_100_forbids(served: Process) -> None:
    first = served.ask(CHAT, ASK | {"temperature": 0, "return_token_ids": True})["choices"][0]["token_ids"][0]
    token = TOKENIZER.encode("Hello")[0]
    forced = ASK | {"logit_bias": {str(token): 100}, "max_tokens": 9, "return_token_ids": True}
    assert served.ask(CHAT, forced | HOT)["choices"][0]["token_ids"] == [token] * 9
    forbidden = ASK | {"logit_bias": {str(first): -100}, "return_token_ids": True, "n": 8, "seed": 1}
    for choice in served.ask(CHAT, forbidden | {"temperature": 0.7})["choices"]:
        assert first not in choice["token_ids"]


def test_bad_words_and_other_tokens_than_the_allowed_never_come(served: Process) -> None:
    greedy = ASK | {"temperature": 0, "return_token_ids": True, "max_tokens": 60}
    answer = served.ask(CHAT, greedy)["choices"][0]
    words = [word for word in answer["message"]["content"].split() if word.isalpha()][:3]
    assert words
    spelled = [TOKENIZER.encode(blank + word) for word in words for blank in ("", " ")]
    hot = greedy | {"bad_words": words, "n": 8, "seed": 3, "temperature": 0.7}
    for ids in [
        *(choice["token_ids"] for choice in served.ask(CHAT, hot)["choices"]),
        served.ask(CHAT, greedy | {"bad_words": words})["choices"][0]["token_ids"],
    ]:
        assert ids != answer["token_ids"]
        for bad in spelled:
            assert bad not in [ids[start : start + len(bad)] for start in range(len(ids))]
    few = TOKENIZER.encode("0123456789")
    only = served.ask(
        CHAT, ASK | HOT | {"allowed_token_ids": few, "max_tokens": 30, "return_token_ids": True}
    )
    assert set(only["choices"][0]["token_ids"]) <= set(few)


def test_log_probabilities_do_not_change_the_answer_and_min_p_1_is_greedy(served: Process) -> None:
    plain = said(served.ask(CHAT, ASK | HOT | {"seed": 7}))
    assert said(served.ask(CHAT, ASK | HOT | {"seed": 7, "logprobs": True, "prompt_logprobs": 0})) == plain
    greedy = said(served.ask(CHAT, ASK | {"temperature": 0}))
    assert said(served.ask(CHAT, ASK | HOT | {"min_p": 1.0})) == greedy != plain


def test_the_clients_read_what_they_are_told(served: Process) -> None:
    """The helpers of the openai and ollama packages put logprobs and choices together from a stream."""
    ask: Any = {"model": "acorn", "temperature": 0}
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        options = ask | {
            "logprobs": True,
            "top_logprobs": 2,
            "n": 2,
            "stream_options": {"include_usage": True},
        }
        with client.chat.completions.stream(**ASK, **options) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        texts = [choice.message.content for choice in final.choices]
        assert texts == said(served.ask(CHAT, ASK | {"temperature": 0})) * 2
        contents = [choice.logprobs.content for choice in final.choices if choice.logprobs]
        assert final.usage is not None
        assert final.usage.completion_tokens == sum(len(content or ()) for content in contents)
        for content in contents:
            assert content is not None
            tokens = [bytes(one.bytes or ()) for one in content]
            assert b"".join(tokens).decode().removesuffix("<turn|>") == texts[0]
            assert all(len(one.top_logprobs) == 2 for one in content)
        text = client.completions.create(prompt=PROMPT, echo=True, logprobs=3, max_tokens=1, **ask).choices[0]
        assert text.logprobs is not None
        assert len(text.logprobs.tokens or ()) == len(PROMPT) + 1
        include: Any = ["message.output_text.logprobs"]
        response = client.responses.create(input=PROBLEM, include=include, top_logprobs=2, **ask)
        [part] = response.output[-1].content
        assert "".join(one.token for one in part.logprobs) == part.text == texts[0]
    options = {"temperature": 0, "repeat_penalty": 1.0}
    with ollama.Client(served.url) as local:
        reply = local.generate("acorn", PROBLEM, logprobs=True, top_logprobs=1, options=options)
    assert reply.logprobs is not None
    assert "".join(one.token for one in reply.logprobs).removesuffix("<turn|>") == reply.response == texts[0]


def test_a_harness_tells_the_greedy_continuation_by_its_log_probabilities(served: Process) -> None:
    """lm-evaluation-harness asks for one token more, drops it, and calls a continuation greedy if each of its
    log-probabilities is the largest at its place, to the bit.
    """
    greedy = ASK | {"temperature": 0, "return_token_ids": True}
    right = served.ask(CHAT, greedy)["choices"][0]["token_ids"]
    wrong = [*right[:3], TOKENIZER.encode("Hello")[0], *right[4:]]
    body = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    choices = served.ask(TEXT, body | {"prompt": [[*PROMPT, *right], [*PROMPT, *wrong]]})["choices"]
    sums = []
    for ids, choice in zip((right, wrong), choices, strict=True):
        told = choice["logprobs"]
        assert len(told["tokens"]) == len(PROMPT) + len(ids) + 1
        chosen, top = told["token_logprobs"][len(PROMPT) : -1], told["top_logprobs"][len(PROMPT) : -1]
        largest = [one == max(likely.values()) for one, likely in zip(chosen, top, strict=True)]
        assert all(largest) == (ids is right)
        assert largest[:3] == [True] * 3
        sums.append(sum(chosen))
    assert sums[0] > sums[1] + 5
