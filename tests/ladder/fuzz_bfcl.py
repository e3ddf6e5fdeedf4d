"""Our checker of function calls against the leaderboard's own: `python -m tests.ladder.fuzz_bfcl`.

The oracle is read from its wheel as from a zip; its model-config module, which would import some 150
packages, is replaced by a stub. Functions are the leaderboard's own 400, acorn's, and invented ones; calls
are right ones, most of them damaged. With --write calls on invented functions become test_bfcl.py's fixture.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import subprocess
import sys
import tempfile
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from onechip.ladder.data import BFCL_PACKAGE
from onechip.ladder.scoring import bfcl
from tests.shared_data import SHARED

FIXTURE = Path(__file__).with_name("bfcl_verdicts.json")
KEPT = 600
"""Calls in the fixture."""
WORDS = ("Ann", "b-c", "New York", "it's", 'a "b"', "x_y", "", "É", "5", "3.0", "True", "/", "ab, cd.")
ITEM_KINDS = ("string", "integer", "float", "boolean", "dict", "array")
KINDS = (*ITEM_KINDS, "tuple", "any")


class Case(NamedTuple):
    """A function of a data set, and its reference answer."""

    function: dict[str, Any]
    answer: dict[str, Any]


Oracle = Callable[[str, dict[str, Any], Case], bool | None]
"""(name, arguments, case) -> upstream's verdict; None where its checker breaks down."""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--calls", type=int, default=100_000)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--wheel", type=Path, help=f"of {BFCL_PACKAGE}; fetched with pip if not given")
    words.add_argument(
        "--data", type=Path, default=SHARED / "bfcl", help="folder with simple_python.jsonl and answers"
    )
    words.add_argument("--write", action="store_true", help=f"write {FIXTURE.name}")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        oracle = upstream(given.wheel or _fetched(Path(folder)))
        differing = fuzz(oracle, given.calls, given.seed, given.data)
        if given.write and not differing:
            FIXTURE.write_text(_fixture(oracle, given.seed), encoding="utf-8")
    raise SystemExit(1 if differing else 0)


def fuzz(oracle: Oracle, calls: int, seed: int, data: Path) -> int:
    """Prints how many calls were compared, and those that differ; returns how many do."""
    rng = random.Random(seed)
    known = [*_published(data), *_acorn()]
    verdicts: Counter[bool | None] = Counter()
    differing = 0
    for _ in range(calls):
        case = rng.choice(known) if rng.random() < 0.5 else invented(rng)
        name, arguments = damaged(rng, case)
        theirs = oracle(name, arguments, case)
        verdicts[theirs] += 1
        why = _ours(name, arguments, case)
        if (why is None) != (theirs is True):
            differing += 1
            print(f"DIFFERS: upstream {theirs}, ours {why or 'right'}: {name}({arguments}) of {case}")
    print(
        f"{calls} calls on {len(known)} known functions and invented ones: {differing} verdicts differ."
        f" Upstream: {verdicts[True]} right, {verdicts[False]} wrong, {verdicts[None]} break it down."
    )
    return differing


def _ours(name: str, arguments: dict[str, Any], case: Case) -> str | None:
    return bfcl.check(name, arguments, case.function, case.answer)


# The oracle


def _fetched(folder: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        BFCL_PACKAGE,
    ]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


def upstream(wheel: Path) -> Oracle:
    """The leaderboard's checker, for a model whose API allows no dots in names."""
    config = types.ModuleType("bfcl_eval.constants.model_config")
    dotless = types.SimpleNamespace(underscore_to_dot=True)
    config.MODEL_CONFIG_MAPPING = defaultdict(lambda: dotless)  # type: ignore[attr-defined]
    sys.modules[config.__name__] = config
    sys.path.insert(0, str(wheel))
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON

    def verdict(name: str, arguments: dict[str, Any], case: Case) -> bool | None:
        try:
            found = checker.ast_checker(
                [case.function], [{name: arguments}], [case.answer], python, "simple_python", "any"
            )
        except (TypeError, AttributeError, KeyError):
            return None
        return bool(found["valid"])

    return verdict


# Functions


def _published(data: Path) -> Iterator[Case]:
    rows, answers = (
        [json.loads(line) for line in (data / name).read_text("utf-8").splitlines()]
        for name in ("simple_python.jsonl", "simple_python_answers.jsonl")
    )
    for row, answer in zip(rows, answers, strict=True):
        assert row["id"] == answer["id"]
        yield Case(row["function"][0], answer["ground_truth"][0])


def _acorn() -> Iterator[Case]:
    text = (resources.files("onechip.ladder") / "data" / "acorn_calls.jsonl").read_text("utf-8")
    for row in map(json.loads, text.splitlines()):
        answer = row["ground_truth"][0]
        function = next(found for found in row["function"] if found["name"] == next(iter(answer)))
        yield Case(function, answer)


def invented(rng: random.Random) -> Case:
    """A function with up to four parameters of any kind, and what it allows for each."""
    name = rng.choice(("f", "a.b", "a_b.c"))
    parameters = {f"p{i}": rng.choice(KINDS) for i in range(rng.randint(1, 4))}
    item_kinds = {parameter: rng.choice(ITEM_KINDS) for parameter in parameters}
    properties = {
        parameter: {"type": kind} | ({"items": {"type": item_kinds[parameter]}} if _is_list(kind) else {})
        for parameter, kind in parameters.items()
    }
    required = [parameter for parameter in parameters if rng.random() < 0.5]
    answer = {}
    for parameter, kind in parameters.items():
        allowed = [_allowed(rng, kind, item_kinds[parameter]) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.1:  # the name of a variable stands for a value
            allowed = [rng.choice(WORDS) for _ in allowed]
        if parameter not in required and rng.random() < 0.7:
            allowed.insert(rng.randint(0, len(allowed)), "")
        answer[parameter] = allowed
    schema = {"type": "dict", "properties": properties, "required": required}
    return Case({"name": name, "description": "", "parameters": schema}, {name: answer})


def _is_list(kind: str) -> bool:
    return kind in ("array", "tuple")


def _allowed(rng: random.Random, kind: str, item_kind: str) -> Any:
    """A value of a kind as a reference answer has it: the values of a dict are lists of what is allowed."""
    if kind == "dict":
        return {
            key: [_value(rng), *([""] if rng.random() < 0.3 else [])]
            for key in rng.sample("abc", rng.randint(0, 3))
        }
    if _is_list(kind):
        return [_allowed(rng, item_kind, "string") for _ in range(rng.randint(0, 3))]
    plain = {
        "string": lambda: rng.choice(WORDS),
        "any": lambda: rng.choice(WORDS),
        "integer": lambda: rng.randint(-2, 5),
        "float": lambda: rng.choice((0.5, 2.0, -1.25, 1e9, 3)),
        "boolean": lambda: rng.random() < 0.5,
    }
    return plain[kind]()


# Calls


def damaged(rng: random.Random, case: Case) -> tuple[str, dict[str, Any]]:
    """A call that the reference allows, with up to three things changed."""
    allowed = next(iter(case.answer.values()))
    arguments = {}
    for parameter, values in allowed.items():
        value = rng.choice(values)
        if value != "" or rng.random() < 0.1:
            arguments[parameter] = _call_value(rng, value)
    name = bfcl.wire_name(case.function["name"])
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        name, arguments = _change(rng, name, arguments, case)
    return name, arguments


def _call_value(rng: random.Random, reference: Any) -> Any:
    """A call's value of a reference's, whose dicts hold lists of what is allowed."""
    if isinstance(reference, dict):
        return {
            key: rng.choice(options) if isinstance(options, list) and options else options
            for key, options in reference.items()
        }
    if isinstance(reference, list):
        return [_call_value(rng, item) for item in reference]
    return reference


def _change(
    rng: random.Random, name: str, arguments: dict[str, Any], case: Case
) -> tuple[str, dict[str, Any]]:
    what, changed = rng.random(), dict(arguments)
    if what < 0.03:
        return rng.choice((case.function["name"], name.upper(), name + "_", "g")), changed
    if what < 0.08:
        changed[rng.choice(("p0", "p9", "unit", "a"))] = _value(rng)
    elif what < 0.16 and changed:
        del changed[rng.choice(list(changed))]
    elif what < 0.22 and changed:
        values = list(changed.values())
        changed[rng.choice(list(changed))] = rng.choice(values)
    elif changed:
        parameter = rng.choice(list(changed))
        changed[parameter] = _other(rng, changed[parameter])
    return name, changed


def _other(rng: random.Random, value: Any) -> Any:
    """A value near to another, or far from it."""
    if rng.random() < 0.15:
        return _value(rng)
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        kept = {k: v for k, v in value.items() if k != key}
        return rng.choice((kept, value | {key: _other(rng, value[key])}, value | {"d": _value(rng)}))
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return rng.choice(
            (
                value[:at] + value[at + 1 :],
                [*value[:at], _other(rng, value[at]), *value[at + 1 :]],
                [*value, value[at]],
                value[::-1],
                tuple(value),
            )
        )
    if isinstance(value, str):
        return rng.choice(
            (
                value.upper(),
                f" {value}.",
                value.replace("'", '"'),
                value.replace(" ", "_"),
                value + "x",
                [value],
                value.replace(",", ";"),
                value.swapcase(),
            )
        )
    if isinstance(value, bool):
        return rng.choice((int(value), str(value), not value, float(value)))
    if isinstance(value, (int, float)):
        return rng.choice((float(value), int(value), str(value), value + 1, -value, bool(value), [value]))
    return _value(rng)


def _value(rng: random.Random) -> Any:
    """Any value of JSON."""
    return rng.choice(
        (
            lambda: rng.choice(WORDS),
            lambda: rng.randint(-2, 5),
            lambda: rng.choice((0.5, 2.0, -1.25, 1e9)),
            lambda: rng.random() < 0.5,
            lambda: None,
            lambda: [],
            lambda: {},
            lambda: [rng.choice(WORDS), rng.randint(0, 3)],
            lambda: [[1, 2], ["x"]],
            lambda: {"a": rng.choice(WORDS)},
            lambda: [{"a": rng.choice(WORDS)}],
        )
    )()


def _fixture(oracle: Oracle, seed: int) -> str:
    """Calls on invented functions with upstream's verdicts; as many right ones as wrong ones."""
    rng = random.Random(seed + 1)
    wanted = {True: KEPT // 2, False: KEPT // 2}
    lines = []
    while any(wanted.values()):
        case = invented(rng)
        name, arguments = damaged(rng, case)
        arguments = json.loads(json.dumps(arguments))
        verdict = oracle(name, arguments, case)
        if verdict is not None and wanted[verdict]:
            wanted[verdict] -= 1
            lines.append(
                json.dumps([case.function, case.answer, name, arguments, verdict], ensure_ascii=False)
            )
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    main()
