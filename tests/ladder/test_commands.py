"""`onechip ladder`: a model where a command could stand, and what is said about wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from onechip.cli import app
from onechip.errors import LadderError, OnechipError, UsageError
from onechip.ladder import folder as folders
from onechip.ladder.checkpoint import missing_field
from onechip.ladder.engines import locks
from onechip.ladder.machine import engine_variables, machine, ourselves
from onechip.ladder.pin import allowed, listed
from onechip.ladder.plan import Plan
from onechip.ladder.records import Arm
from tests.ladder.made_ladder import MadeLadder


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["ladder", *words], env={"COLUMNS": "200"})


def refusal(*words: str) -> OnechipError:
    error = invoke(*words).exception
    assert isinstance(error, OnechipError)
    return error


def test_a_model_or_an_option_stands_for_run() -> None:
    for words in (("acorn", "--help"), ("--quick", "--help"), ("run", "--help")):
        said = invoke(*words)
        assert said.exit_code == 0
        assert "--levels" in said.output
        assert "onechip:bf16,onechip:int4" in said.output


def test_help_of_the_group_names_its_commands() -> None:
    said = invoke("--help").output
    assert all(word in said for word in ("resume", "report", "list", "onechip ladder run --help"))


def test_list() -> None:
    said = invoke("list").output
    assert "jobs: start, one, sweep, acc" in said
    assert "this package's engine" in said
    assert "a server that is already running" in said
    assert json.loads(invoke("list", "--json").output)["jobs"] == ["start", "one", "sweep", "acc"]


def test_engines_to_install_that_are_unknown_or_not_ours_to_install() -> None:
    assert "There is no engine 'vlm'; there are onechip, " in refusal("install", "vllm", "vlm").message
    assert "There is no engine 'vlm'" in refusal("uninstall", "vlm").message
    assert refusal("install", "openai").message.startswith("openai is not installed by onechip.")


def test_an_engine_that_is_not_installed_is_refused_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    error = refusal("acorn", "--engines", "onechip,vllm:bf16", "--out", str(tmp_path / "out"))
    assert error.message == "vllm is not installed. Run: onechip ladder install vllm"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--levels", "1,x"), "--levels 1,x: give whole numbers"),
        (("--levels", "0"), "--levels 0: each level is a number of requests at once, 1 to 1024"),
        (("--levels", "8,100000"), "--levels 8,100000: each level is"),
        (("--shapes", "512"), "--shapes 512: write IN/OUT pairs"),
        (
            ("--shapes", "512/128,0/0"),
            "--shapes 512/128,0/0: a shape is IN/OUT, 8 or more in and 2 or more out",
        ),
        (("--shapes", "262143/2"), "262144 together at the most"),
        (("--jobs", ","), "--jobs names no job; the jobs are start, one, sweep, acc"),
        (("--acc", ","), "--acc names no question set; the question sets are acorn"),
        (("--waves", "0"), "--waves 0: give 1 to 64"),
        (("--one-tokens", "1"), "--one-tokens 1: give 2 to 262144"),
        (("--job-minutes", "0"), "--job-minutes 0.0: give 0.1 to 2880"),
        (("--acc-limit", "0"), "--acc-limit 0: give 1 to 1000000"),
        (("--acc-limit", "-1"), "--acc-limit -1: give 1 to"),
        (("--acc-level", "0"), "--acc-level 0: give 1 to 1024"),
        (("--seed", "-1"), "--seed -1: give 0 to 4294967295"),
        (("--seed", str(10**20)), f"--seed {10**20}: give 0 to"),
        (("--cell-seconds", "nan"), "--cell-seconds nan: give 0 to 1800"),
        (("--cell-seconds", "-1"), "--cell-seconds -1.0: give 0 to"),
        (("--stall", "0"), "--stall 0: give seconds, more than 0 and at most 900"),
        (("--stall", "-1"), "--stall -1: give seconds"),
        (("--stall", "nan"), "--stall nan: give seconds"),
        (("--stall", "inf"), "--stall inf: give seconds"),
        (("--jobs", "one,two"), "--jobs two: there is no such job; the jobs are start, one, sweep, acc"),
        (("--acc", "mmlu"), "--acc mmlu: there is no such question set"),
        (("--repeats", "0"), "--repeats 0: give N, or LEAST-MOST, of 1 to 1000"),
        (("--repeats", "12-6"), "--repeats 12-6: give N, or LEAST-MOST"),
        (("--repeats", "six"), "--repeats six: give a number, like 6, or the least and the most, like 6-12"),
        (("--cool-down", "-1"), "--cool-down -1.0: give 0 to 1800"),
        (("--per-start", "2"), "--per-start 2 is for --compare A B"),
        (("--pin", "a"), "--pin a: give numbers of cores and ranges of them, like 0-5,8"),
        (("--pin", "3-1"), "--pin 3-1: give numbers of cores"),
        (("--pin", "4000"), "--pin 4000: this process may use cores "),
        (("--pin", listed(allowed())), "that leaves no core for the client"),
        (("--compare", "onechip:bf16", "vlm"), "there is no engine 'vlm'"),
        (
            ("--compare", "onechip:bf16", "onechip:int4", "--engines", "onechip"),
            "--compare runs onechip:bf16 and onechip:int4 alone: leave --engines onechip out",
        ),
        (
            ("--compare", "onechip:bf16", "onechip:int4", "--arm", "x = onechip:bf16"),
            "leave --arm 'x' out",
        ),
        (
            ("--compare", "onechip:bf16", "onechip:int4", "--repeats", "7"),
            "--repeats 7: A B B A blocks with --per-start 1 give each arm 2 repeats; give a multiple of 2",
        ),
        (("--engines", "vlm"), "there is no engine 'vlm'"),
    ],
)
def test_wrong_options(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    error = refusal("acorn", "--out", str(tmp_path / "out"), *words)
    assert isinstance(error, UsageError)
    assert sentence in error.message
    assert not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    error = refusal("acorn", "--out", str(tmp_path / "mine.txt"))
    assert isinstance(error, UsageError)
    assert error.message.endswith("mine.txt is a file: give a new folder.")
    error = refusal("acorn", "--out", str(tmp_path / "mine.txt" / "below"))
    assert isinstance(error, UsageError)
    assert "below cannot be made: Not a directory" in error.message
    assert "is not a results folder" in refusal("resume", str(tmp_path / "mine.txt")).message


def test_folders_that_hold_no_ladder(tmp_path: Path) -> None:
    for command in ("resume", "report"):
        error = refusal(command, str(tmp_path))
        assert isinstance(error, LadderError)
        assert "holds no manifest.json" in error.message


def test_a_file_that_cannot_be_used_is_named_whatever_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeLadder({"a": 60.0}, repeats=1).write(tmp_path / "one")
    other = MadeLadder({"a": 60.0}, repeats=1).write(tmp_path / "other")
    (tmp_path / "afile").touch()
    error = refusal("report", str(made), str(other), "--out", str(tmp_path / "afile"))
    assert isinstance(error, UsageError)
    assert error.message == f"{tmp_path / 'afile'} cannot be used (File exists): mend that, or give another."
    (made / "report.html").unlink()
    (made / "report.html").mkdir()
    assert f"{made / 'report.html'} cannot be used (Is a directory)" in refusal("report", str(made)).message
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "afile"))
    monkeypatch.setattr(locks, "read", lambda *_: locks.Lock("x", (), (), "abc"))
    said = refusal("install", "mistral.rs").message
    assert said.startswith(f"{tmp_path / 'afile' / 'onechip' / 'engines'} cannot be used (Not a directory): ")
    assert said.endswith("set XDG_CACHE_HOME to a folder that can be written.")


def test_shapes_that_the_model_cannot_hold_are_said_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 512}')
    arms = (Arm("a", "onechip", str(tmp_path)),)
    error = "--shapes 600/2: .* takes 512 tokens, prompt and output together. Give shorter shapes"
    with pytest.raises(UsageError, match=error):
        folders.create(tmp_path / "out", Plan(str(tmp_path), arms, shapes=((600, 2),)))
    assert not (tmp_path / "out").exists()
    manifest = folders.create(tmp_path / "out", Plan(str(tmp_path), arms))
    assert manifest.plan.shapes == ((256, 64), (64, 256))
    halved = "The sweep's shape 512/128 was run as 256/64, because the context is 512 tokens."
    assert halved in manifest.notes
    remote = (Arm("a", "openai", str(tmp_path), url="http://127.0.0.1:1"),)
    plan = Plan(str(tmp_path), remote)
    assert folders.create(tmp_path / "remote", plan).plan == plan, "whose context is not known yet"


def test_a_field_that_an_engine_misses_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"text_config": {"there": 1}}')
    log = ["ValueError: missing field `layer_types` at line 1 column 9"]
    assert missing_field(tmp_path, log) == (
        f"{tmp_path / 'config.json'} has no layer_types, which this engine's reader wants there."
    )
    assert missing_field(tmp_path, ["missing field `there`"]) is None
    assert missing_field(tmp_path / "x.gguf", log) is None


def test_a_manifest_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert "manifest.json cannot be read by onechip" in refusal("resume", str(tmp_path)).message


def test_facts_for_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("HF_TOKEN", "hidden")
    monkeypatch.setenv("ONECHIP_API_KEY", "hidden")
    assert engine_variables()["JAX_PLATFORMS"] == "cpu"
    assert "hidden" not in engine_variables().values()
    assert all(machine().values())
    assert set(ourselves()) == {"version", "commit", "python"}
