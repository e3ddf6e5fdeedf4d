"""The engine on acorn, from the outside: what is promised to a request whoever else is there."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from onechip.engine import core
from onechip.engine.core import Engine
from onechip.engine.start import LoadedEngine
from onechip.engine.types import MAX_STOP_IDS, EngineConfig, Request, SamplingParams
from onechip.errors import CheckpointError, EngineError, QueueFullError, RequestError
from onechip.models.config import read_config, read_json
from onechip.models.tokenizer import Tokenizer
from onechip.models.weights import load_weights, save_checkpoint
from tests.engine.conftest import ACORN, Client
from tests.waiting import wait_until

_names = itertools.count()


def request(prompt: tuple[int, ...], **sampling: object) -> Request:
    params = SamplingParams(**{"max_tokens": 200, **sampling})  # type: ignore[arg-type]
    return Request(f"r{next(_names)}", prompt, params)


@pytest.fixture(scope="session")
def alone(client: Client, questions: list[tuple[int, ...]]) -> list[list[int]]:
    """Each question's greedy answer with nobody else there."""
    return [client.run(request(prompt))[0] for prompt in questions]


def test_greedy_text_is_the_same_alone_and_among_64(
    client: Client, questions: list[tuple[int, ...]], alone: list[list[int]]
) -> None:
    assert client.run(*(request(prompt) for prompt in questions)) == alone
    assert len({tuple(answer) for answer in alone}) > 32, "the answers must differ for this to show anything"


def test_greedy_text_is_the_same_in_a_crowd_that_comes_and_goes(
    client: Client, questions: list[tuple[int, ...]], alone: list[list[int]]
) -> None:
    rng = np.random.default_rng(3)
    requests = [request(questions[i]) for i in range(64)]
    crowd = [
        request(questions[i % 64], temperature=1.0, seed=i, max_tokens=int(rng.integers(1, 90)))
        for i in range(60)
    ]
    for mine, other in itertools.zip_longest(requests, crowd):
        client.submit(*(entry for entry in (other, mine) if entry))
        time.sleep(float(rng.uniform(0, 0.01)))
    for entry in crowd[::3]:
        client.engine.cancel(entry.id)
    client.wait()
    assert [client.tokens(entry.id) for entry in requests] == alone


def test_a_seed_fixes_the_draw_whoever_shares_the_batch(
    client: Client, questions: list[tuple[int, ...]]
) -> None:
    def drawn(seed: int) -> Request:
        return request(questions[0], temperature=1.5, seed=seed, ignore_eos=True, max_tokens=40)

    [first] = client.run(drawn(11))
    again, other, *_ = client.run(drawn(11), drawn(12), *(request(prompt) for prompt in questions[:30]))
    assert again == first
    assert other != first


def test_answers_end_with_a_stop_id(client: Client, alone: list[list[int]], tokenizer: Tokenizer) -> None:
    ended = [answer for answer in alone if answer[-1] in tokenizer.stop_ids]
    assert len(ended) > 32
    for answer in ended:
        assert not tokenizer.stop_ids & set(answer[:-1])


@pytest.mark.parametrize("max_tokens", [1, 2, 8, 9, 63])
def test_max_tokens_and_ignore_eos(client: Client, questions: list[tuple[int, ...]], max_tokens: int) -> None:
    entry = request(questions[1], max_tokens=max_tokens, ignore_eos=True)
    [tokens] = client.run(entry)
    assert len(tokens) == max_tokens
    assert client.finish(entry.id) == "length"


def test_min_tokens_puts_the_stop_off(
    client: Client, questions: list[tuple[int, ...]], alone: list[list[int]], tokenizer: Tokenizer
) -> None:
    wanted = len(alone[2]) + 10
    [tokens] = client.run(request(questions[2], min_tokens=wanted, max_tokens=wanted + 30))
    assert tokens[: len(alone[2]) - 1] == alone[2][:-1]
    assert not tokenizer.stop_ids & set(tokens[:wanted])
    assert len(tokens) > wanted


def test_own_stop_token_ids(client: Client, questions: list[tuple[int, ...]], alone: list[list[int]]) -> None:
    stop = alone[3][5]
    entry = request(questions[3], stop_token_ids=(stop,))
    [tokens] = client.run(entry)
    assert tokens == alone[3][: alone[3].index(stop) + 1]
    assert client.finish(entry.id) == "stop"


def test_output_is_cut_to_what_the_context_leaves(client: Client) -> None:
    prompt = tuple(range(300, 300 + 400)) * 2 + tuple(range(300, 515))
    entry = request(prompt, max_tokens=500, ignore_eos=True)
    [tokens] = client.run(entry)
    assert len(prompt) + len(tokens) == client.engine.context == 1024
    assert client.finish(entry.id) == "length"


def test_cancel_in_the_middle_frees_the_slot(client: Client, questions: list[tuple[int, ...]]) -> None:
    entries = [request(prompt, max_tokens=900, ignore_eos=True) for prompt in questions[:4]]
    for entry in entries:
        client.when(3, entry.id, partial(client.engine.cancel, entry.id))
    client.submit(*entries)
    client.wait()
    most = 2 + 2 * client.engine._loaded.plan.window  # the window that gives the third token, and one more
    for entry in entries:
        assert client.finish(entry.id) == "cancelled"
        assert 3 <= len(client.tokens(entry.id)) <= most
    stats = client.engine.stats()
    assert (stats.running, stats.waiting, stats.cache_used) == (0, 0, 0.0)


def test_more_requests_than_slots_wait_their_turn(
    client: Client, questions: list[tuple[int, ...]], alone: list[list[int]]
) -> None:
    crowd = [request(prompt) for prompt in questions for _ in range(2)]
    answers = client.run(*crowd)
    assert answers == [answer for answer in alone for _ in range(2)]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (Request("empty", ()), "0 tokens"),
        (Request("long", (5,) * 1024), "1024 tokens"),
        (Request("unknown", (5, 10**6)), "token 1000000, but the model knows 0 to"),
        (
            Request("stops", (5,), SamplingParams(stop_token_ids=tuple(range(200, 200 + MAX_STOP_IDS + 1)))),
            "stop ids",
        ),
        (Request("k", (5,), SamplingParams(top_k=2**31)), "too large for the engine"),
    ],
)
def test_what_cannot_run_is_refused_with_the_numbers(client: Client, entry: Request, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        client.engine.submit(entry)


def test_nothing_is_compiled_after_warm_up(
    client: Client, questions: list[tuple[int, ...]], compiled_by_engines: list[float]
) -> None:
    """Every bucket, every kind of sampling, chunked prompts: all was compiled before."""
    before = client.engine.stats().compiles_after_warmup  # what other tests compiled in this process
    for count in (1, 3, 9, 40):
        client.run(
            *(
                request(prompt, temperature=i % 2, top_p=0.9, top_k=5, min_p=0.1)
                for i, prompt in enumerate(questions[:count])
            )
        )
    client.run(request(tuple(range(300, 900))))
    assert client.engine.stats().compiles_after_warmup == before
    assert compiled_by_engines == []


def test_the_second_start_compiles_nothing(acorn_engine: Engine, engine_cache: Path) -> None:
    compiles = core.load(EngineConfig(ACORN, context=1024, cache_dir=engine_cache), lambda *_: None).compiles
    assert compiles.total == 0
    plan = acorn_engine._loaded.plan
    folders = (engine_cache / "executables").iterdir()  # of other tests' engines too
    used_last = max(folders, key=lambda folder: folder.stat().st_mtime_ns)
    kept = {path.stem for path in used_last.glob("*.bin")} - {"score"}
    assert len(kept) == 5 + len(plan.chunk_buckets) + len(plan.row_buckets)


def test_damaged_weights_are_refused_at_the_start(tmp_path: Path, engine_cache: Path) -> None:
    for path in ACORN.iterdir():
        shutil.copy(path, tmp_path)
    config = read_config(ACORN)
    params = load_weights(ACORN, config) | {"norm": np.full(config.hidden, np.nan, ml_dtypes.bfloat16)}
    save_checkpoint(tmp_path, read_json(ACORN / "config.json"), params)
    with pytest.raises(CheckpointError, match="not finite"):
        core.load(EngineConfig(tmp_path, context=1024, cache_dir=engine_cache), lambda *_: None)


class Jammed:
    """A device whose programs fail, or hang until they are let go, and then choose token 9 for everybody."""

    def __init__(self, loaded: LoadedEngine) -> None:
        self.loaded = loaded
        self.release = threading.Event()
        self.error: Exception | None = None
        self.windows = 0

    def join(self, *_: object) -> object:
        if self.error:
            raise self.error
        self.release.wait(30)
        return self.loaded.state

    def decode(self, *_: object) -> object:
        self.windows += 1
        plan = self.loaded.plan
        return self.loaded.state, np.full((plan.window, plan.slots), 9, np.int32)


@pytest.fixture
def jammed(acorn_engine: Engine) -> Jammed:
    return Jammed(acorn_engine._loaded)


def jammed_engine(jammed: Jammed, **config: int) -> tuple[Engine, Client]:
    decode = dict.fromkeys(jammed.loaded.decode, jammed.decode)
    loaded = replace(jammed.loaded, join=jammed.join, decode=decode)
    engine = Engine(loaded, EngineConfig(ACORN, **config))
    client = Client(engine)
    engine.start(client.deliver)
    return engine, client


@pytest.mark.parametrize(("long_turn_s", "windows"), [(-1.0, 1), (3600.0, 2)])
def test_long_turns_are_read_at_once(
    jammed: Jammed, monkeypatch: pytest.MonkeyPatch, long_turn_s: float, windows: int
) -> None:
    monkeypatch.setattr(core, "LONG_TURN_S", long_turn_s)
    jammed.release.set()
    engine, client = jammed_engine(jammed)
    client.run(request((5,), stop_token_ids=(9,)))
    engine.stop()
    assert jammed.windows == windows


def test_a_full_queue_is_refused(jammed: Jammed) -> None:
    engine, client = jammed_engine(jammed, max_waiting=2)
    client.submit(*(request((5,), max_tokens=1) for _ in range(engine.max_requests + 2)))
    with pytest.raises(QueueFullError):
        engine.submit(request((5,)))
    jammed.release.set()
    client.wait()
    engine.stop()


def test_a_failed_device_ends_every_request_with_an_error(
    jammed: Jammed, capsys: pytest.CaptureFixture[str]
) -> None:
    jammed.error = RuntimeError("out of magic smoke")
    engine, client = jammed_engine(jammed)
    entry = request((5,))
    client.submit(entry)
    client.wait()
    assert client.finish(entry.id) == "error"
    assert engine.failed == "RuntimeError: out of magic smoke"
    with pytest.raises(EngineError, match="magic smoke"):
        engine.submit(request((5,)))
    assert "out of magic smoke" in capsys.readouterr().err


def test_a_hanging_device_shows_as_failed(jammed: Jammed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "STALL_SECONDS", 0.05)
    engine, client = jammed_engine(jammed)
    assert engine.failed is None
    client.submit(request((5,), max_tokens=1))
    wait_until(lambda: engine.failed is not None)
    assert "has not answered" in (engine.failed or "")
    jammed.release.set()
    client.wait()
    wait_until(lambda: engine.failed is None)  # the turn that answered may not have ended yet
    engine.stop()


def test_drain_refuses_new_requests_and_finishes_the_running(jammed: Jammed) -> None:
    engine, client = jammed_engine(jammed)
    entry = request((5,), max_tokens=1)
    client.submit(entry)
    left: list[int] = []
    drainer = threading.Thread(target=lambda: left.append(engine.drain(timeout_s=20)))
    drainer.start()
    wait_until(lambda: engine._draining)
    with pytest.raises(EngineError, match="shutting down"):
        engine.submit(request((5,)))
    jammed.release.set()
    drainer.join()
    engine.stop()  # what was drained is delivered by then
    assert left == [0]
    assert client.finish(entry.id) == "length"
