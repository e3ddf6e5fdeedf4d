"""Which chat template a checkpoint is served with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import onechip.models
from onechip.errors import CheckpointError, UsageError
from onechip.models.chat_template import ChatTemplate
from onechip.models.config import ModelConfig, read_config
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.view import open_parts
from onechip.models.served_template import served_template
from tests.shared_data import SHARED

ACORN = Path(onechip.models.__file__).parent / "acorn"
FIRST = Path(__file__).parent / "first_gemma4.jinja"
SMALL = read_config(ACORN)
LARGE = replace(SMALL, ple_dim=0)
USER = {"role": "user", "content": "Hi"}
CALLED: list[dict[str, Any]] = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"n": null}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "20"},
]
CALL = "<|tool_call>call:f{n:null}<tool_call|>"
RESULT = '<|tool_response>response:f{value:<|"|>20<|"|>}<tool_response|>'


def checkpoint(folder: Path, template: str) -> Path:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).symlink_to(ACORN / file)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def served(folder: Path, config: ModelConfig, given: Path | None = None) -> tuple[ChatTemplate, str]:
    template, note = served_template(folder, config, given)
    assert template is not None
    return template, note


@cache
def launched() -> str:
    """The template that llama.cpp's vocabulary file was made with."""
    path = SHARED / "gemma4_vocab.gguf"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return Metadata.read(open_parts(path)).text("tokenizer.chat_template")


@pytest.fixture(params=["in few words", "as published"])
def first(request: pytest.FixtureRequest) -> str:
    return FIRST.read_text() if request.param == "in few words" else launched()


def test_gemma4s_first_is_replaced(tmp_path: Path, first: str) -> None:
    template, note = served(checkpoint(tmp_path, first), SMALL)
    assert template.render(CALLED).endswith(CALL + RESULT)
    assert template.render([USER]) == "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    assert "Gemma 4's first" in note
    assert "--chat-template" in note


def test_sizes_without_embeddings_per_layer_close_the_thoughts_that_they_shall_not_have(
    tmp_path: Path, first: str
) -> None:
    template, _ = served(checkpoint(tmp_path, first), LARGE)
    empty = "<|channel>thought\n<channel|>"
    assert template.render([USER]).endswith(f"<|turn>model\n{empty}")
    assert template.render([USER], enable_thinking=True).endswith("<|turn>model\n")
    assert template.render(CALLED).endswith(RESULT)
    assert empty not in template.render([USER], add_generation_prompt=False)


@pytest.mark.parametrize(
    "source",
    [
        (ACORN / "chat_template.jinja").read_text(),
        "{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for c in m.tool_calls or () %}<tool_call>{{ c.function | tojson }}{% endfor %}{% endfor %}",
        "{{ raise_exception('no') }}",
    ],
    ids=["today's", "without calls", "another family's", "fails"],
)
def test_others_stay(tmp_path: Path, source: str) -> None:
    template, note = served(checkpoint(tmp_path, source), SMALL)
    assert (template.source, note) == (source, "")


def test_googles_of_today_stays(tmp_path: Path) -> None:
    path = SHARED / "gemma4_chat_template.jinja"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    assert served(checkpoint(tmp_path, path.read_text()), SMALL)[1] == ""


def test_a_checkpoint_without_one(tmp_path: Path) -> None:
    assert served_template(tmp_path, SMALL) == (None, "")


def test_one_that_is_given_is_taken_whatever_the_checkpoint_has(tmp_path: Path) -> None:
    given = tmp_path / "mine.jinja"
    given.write_text("{{ bos_token }}{{ messages[0].content }}!")
    template, note = served(checkpoint(tmp_path, FIRST.read_text()), SMALL, given)
    assert (template.render([USER]), note) == ("<bos>Hi!", "")


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"\xff", "it is not UTF-8")])
def test_one_that_cannot_be_read(tmp_path: Path, content: bytes | None, said: str) -> None:
    given = tmp_path / "mine.jinja"
    if content is not None:
        given.write_bytes(content)
    with pytest.raises(UsageError, match=rf"--chat-template .*mine\.jinja cannot be read: {said}"):
        served_template(ACORN, SMALL, given)


def test_one_with_an_error(tmp_path: Path) -> None:
    given = tmp_path / "mine.jinja"
    given.write_text("{{")
    with pytest.raises(CheckpointError, match="error in line 1"):
        served_template(ACORN, SMALL, given)
