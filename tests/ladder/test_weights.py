"""Forms of MODEL: made once, 4-bit ones from the same values; MODEL itself where it is in that form."""

from __future__ import annotations

from pathlib import Path

import pytest

from onechip.errors import EngineError
from onechip.ladder import weights
from onechip.ladder.checkpoint import file_hashes
from onechip.ladder.weights import FORMS, prepare


class Converter:
    """Stands for `onechip convert`: writes one file, keeps what was asked; fails if told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.asked: list[list[str]] = []
        self.error = ""
        monkeypatch.setattr(weights, "_said", lambda command, failure: kind)
        monkeypatch.setattr(weights._Maker, "_convert", lambda maker, *words: self.convert(*words))

    def convert(self, words: list[str], form: str, folder: Path) -> str:
        self.asked.append(words)
        if self.error:
            raise EngineError(self.error)
        target = Path(words[2])
        if target.suffix != ".gguf":
            target.mkdir()
            target = target / "model.safetensors"
        target.write_text(" ".join(words[3:]))
        return f"{form} ━━━ 1.8/1.8 MB\n{words[2]}: {form}, 1 GB of weights\nRounded: 2 tensors.\n"

    def steps(self) -> list[str]:
        return [words[words.index("--to") + 1] for words in self.asked]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def get(model: Path, form: str) -> weights.Weights:
    return prepare(str(model), form, file_hashes(model), lambda line: None)


def test_four_bits_are_rounded_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 4-bit form is made from one w4a16, and only the steps that round are allowed to."""
    converter = Converter(monkeypatch, "bf16")
    made = {form: get(model, form) for form in FORMS if form != "bf16"}
    assert sorted(converter.steps()) == sorted(
        [
            "w4a16",
            "w4a16-emb4",
            "gguf-bf16",
            "gguf-f16",
            "gguf-f32",
            "gguf-q8_0",
            "gguf-q4_0",
            "gguf-q4_0",
            "gguf-q4_0",
        ]
    )
    parents = {(words[4], *words[5:]): words[1] for words in converter.asked}
    assert parents[("w4a16", "--round")] == str(model)
    assert parents[("gguf-q4_0", "--tables", "bf16")] == made["w4a16"].path
    assert parents[("gguf-q4_0", "--tables", "q6_k")] == made["w4a16"].path
    assert parents[("w4a16-emb4", "--round")] == made["w4a16"].path
    assert parents[("gguf-q4_0", "--tables", "q4_0")] == made["w4a16-emb4"].path
    assert sum("--round" in words for words in converter.asked) == 2


def test_made_once_and_recorded(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = Converter(monkeypatch, "bf16")
    made = get(model, "gguf-bf16")
    assert get(model, "gguf-bf16") == made
    assert converter.steps() == ["gguf-bf16"]
    assert made.command == ["onechip", "convert", str(model), made.path, "--to", "gguf-bf16"]
    assert made.hashes == file_hashes(Path(made.path))
    assert made.notes == ["gguf-bf16, 1 GB of weights", "Rounded: 2 tensors."]
    (model / "model.safetensors").write_bytes(b"other weights")
    assert get(model, "gguf-bf16").path != made.path


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("bf16", "bf16"),
        ("w4a16", "w4a16"),
        ("w4a16-emb4", "w4a16-emb4"),
        ("f16", ""),
        ("gguf-q4_0", "gguf-q4_0-q6_k"),
    ],
)
def test_what_is_in_the_form_already(
    kind: str, form: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converter = Converter(monkeypatch, kind)
    assert get(model, form) == weights.Weights(str(model), form, [], file_hashes(model))
    assert converter.asked == []


def test_a_gguf_file_is_itself(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = model / "x.gguf"
    file.write_bytes(b"GGUF")
    Converter(monkeypatch, "gguf-bf16")
    assert file_hashes(file).keys() == {"x.gguf"}
    assert prepare(str(file), "gguf-bf16", file_hashes(file), lambda line: None).path == str(file)


def test_a_failure_leaves_nothing_and_is_tried_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = Converter(monkeypatch, "bf16")
    converter.error = "gguf-f16 cannot be made"
    with pytest.raises(EngineError, match="gguf-f16 cannot be made"):
        get(model, "gguf-f16")
    assert list((model.parent / "cache" / "onechip" / "weights").iterdir()) == []
    converter.error = ""
    assert Path(get(model, "gguf-f16").path).is_file()


def test_what_a_killed_ladder_left_is_removed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is named for its process; that of one that lives stays."""
    Converter(monkeypatch, "bf16")
    made = Path(get(model, "gguf-f32").path).parent
    (made / weights.RECORD).unlink()
    dead, alive = (made.with_name(f"{made.name}.{number}") for number in (2**30, 1))
    dead.mkdir()
    alive.mkdir()
    assert Path(get(model, "gguf-f32").path).is_file()
    assert alive.exists()
    assert not dead.exists()


def test_models_that_are_not_there() -> None:
    with pytest.raises(EngineError, match="is no folder here"):
        prepare("no such model", "", {}, lambda line: None)


def test_a_real_conversion_and_a_real_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """acorn as GGUF; its rows of 128 do not fit Q6_K's blocks, which the converter says in one sentence."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    hashes = file_hashes(weights.source("acorn"))
    lines: list[str] = []
    made = prepare("acorn", "gguf-f32", hashes, lines.append)
    with Path(made.path).open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert any(line.startswith("making gguf-f32 of acorn: 0.0") for line in lines)
    maker = weights._Maker("acorn", weights.source("acorn"), hashes, lines.append)
    with pytest.raises(
        EngineError, match=r"gguf-q4_0-q6_k cannot be made of acorn: .*Q6_K needs multiples of 256"
    ):
        maker._make("gguf-q4_0-q6_k", maker.path, tmp_path / "x")
