"""The prompts of Gemma 4's template, from the published file and from the one that acorn brings."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import jinja2
import pytest

import onechip.models
from onechip.errors import CheckpointError, RequestError
from onechip.models.chat_template import ChatTemplate
from tests.shared_data import SHARED

ACORN = Path(onechip.models.__file__).parent / "acorn"
OFFICIAL = SHARED / "gemma4_chat_template.jinja"

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "City name"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                },
                "required": ["city"],
            },
        },
    }
]
DECLARATION = (
    '<|tool>declaration:get_weather{description:<|"|>Get weather<|"|>,parameters:{properties:{'
    'city:{description:<|"|>City name<|"|>,type:<|"|>STRING<|"|>},'
    'days:{items:{type:<|"|>INTEGER<|"|>},type:<|"|>ARRAY<|"|>},'
    'unit:{enum:[<|"|>c<|"|>,<|"|>f<|"|>],type:<|"|>STRING<|"|>}},'
    'required:[<|"|>city<|"|>],type:<|"|>OBJECT<|"|>}}<tool|>'
)
HI = {"role": "user", "content": "Hi"}
CALL_TEXT = (
    '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:[1,2],f:true,n:null,o:{b:1.5}}<tool_call|>'
)
ARGUMENTS = {"o": {"b": 1.5}, "city": "Paris", "days": [1, 2], "f": True, "n": None}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": '{"t":20}'}


def call(arguments: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


@pytest.fixture(params=["official", "acorn"])
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    if request.param == "acorn":
        return ChatTemplate.load(ACORN)
    if not OFFICIAL.is_file():
        pytest.skip(f"{OFFICIAL} is not here (set ONECHIP_SHARED)")
    return ChatTemplate(OFFICIAL.read_text(), {"bos_token": "<bos>"})


def test_plain(template: ChatTemplate) -> None:
    """No empty thought where there shall be none: ollama#15536."""
    prompt = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"
    assert template.render([HI]) == template.render([HI], enable_thinking=False) == prompt


def test_system(template: ChatTemplate) -> None:
    messages = [{"role": "system", "content": "Be brief."}, HI]
    prompt = "<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
    assert template.render(messages) == prompt


def test_thinking_opens_a_system_turn(template: ChatTemplate) -> None:
    messages = [{"role": "system", "content": "Be brief."}, HI]
    tail = "<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"
    start = "<bos><|turn>system\n<|think|>\n"
    assert template.render(messages, enable_thinking=True) == f"{start}Be brief.{tail}"
    assert template.render([HI], enable_thinking=True) == f"{start}{tail}"


def test_tools(template: ChatTemplate) -> None:
    head = f"<bos><|turn>system\n{DECLARATION}<turn|>\n"
    assert template.render([HI], TOOLS) == f"{head}<|turn>user\nHi<turn|>\n<|turn>model\n"
    assert template.render([HI], []) == template.render([HI])


@pytest.mark.parametrize("with_text", [False, True], ids=["object", "JSON text"])
def test_call_in_history(template: ChatTemplate, with_text: bool) -> None:
    text = '{"o": {"b": 1.5}, "city": "Paris", "days": [1, 2], "f": true, "n": null}'
    message = call(text if with_text else ARGUMENTS)
    prompt = f"<bos><|turn>user\nHi<turn|>\n<|turn>model\n{CALL_TEXT}<|tool_response>"
    assert template.render([HI, message]) == prompt
    assert (message["tool_calls"][0]["function"]["arguments"] == text) is with_text  # left as it was


def test_result_goes_on_in_the_same_turn(template: ChatTemplate) -> None:
    answer = '<|tool_response>response:get_weather{value:<|"|>{"t":20}<|"|>}<tool_response|>'
    prompt = f"<bos><|turn>user\nHi<turn|>\n<|turn>model\n{CALL_TEXT}{answer}"
    assert template.render([HI, call(ARGUMENTS), RESULT]) == prompt


def test_result_with_thinking_opens_the_thought_channel(template: ChatTemplate) -> None:
    prompt = template.render([HI, call(ARGUMENTS), RESULT], enable_thinking=True)
    assert prompt.endswith("<tool_response|><|channel>thought\n")


def test_earlier_reasoning_is_dropped_from_content(template: ChatTemplate) -> None:
    answer = {"role": "assistant", "content": "<|channel>thought\nhm\n<channel|>Hello"}
    prompt = template.render([HI, answer, HI])
    assert "<|turn>model\nHello<turn|>\n" in prompt


def test_content_in_parts(template: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert template.render([{"role": "user", "content": parts}]) == template.render([HI])


def test_arguments_that_are_no_object_are_refused_by_name() -> None:
    template = ChatTemplate.load(ACORN)
    field = r"messages\[1\]\.tool_calls\[0\]\.function\.arguments"
    for arguments, word in (("{", "is not JSON"), ("[1]", "must be a JSON object")):
        with pytest.raises(RequestError, match=f"{field} {word}"):
            template.render([HI, call(arguments)])


@pytest.mark.parametrize(
    ("parameters", "field", "words"),
    [
        ({"properties": {"a": {"properties": 5}}}, ".properties.a.properties", "is 5: expected an object of"),
        ({"properties": {"a": 5}}, ".properties.a", "is 5: expected a schema"),
        ({"items": [{"anyOf": {}}]}, ".items[0].anyOf", "is {}: expected a list of schemas"),
        ({"$defs": {"T": {"type": 1}}}, ".$defs.T.type", "is 1: expected a type"),
        ({"properties": {"a": {"enum": "b"}}}, ".properties.a.enum", 'is "b": expected a list'),
    ],
)
def test_parameters_that_are_no_schema_are_refused_by_name(
    template: ChatTemplate, parameters: Any, field: str, words: str
) -> None:
    tools = [*TOOLS, {"type": "function", "function": {"name": "f", "parameters": parameters}}]
    with pytest.raises(RequestError) as caught:
        template.render([HI], tools)
    assert caught.value.param == f"tools[1].function.parameters{field}"
    assert caught.value.message.startswith(f"tools[1].function.parameters{field} {words}")


def test_schemas_of_all_drafts_are_taken(template: ChatTemplate) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"], "anyOf": None, "description": None},
            "b": {"type": "array", "items": {"type": "string"}},
            "c": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            "properties": {"type": "string", "required": True},
        },
        "additionalProperties": False,
    }
    function = {"name": "f", "description": "d", "parameters": parameters}
    assert "declaration:f" in template.render([HI], [{"type": "function", "function": function}])


def test_what_the_template_raises_is_a_request_error() -> None:
    template = ChatTemplate("{{ raise_exception('no such role') }}", {})
    with pytest.raises(RequestError, match="no such role"):
        template.render([HI])
    with pytest.raises(RequestError, match="can make nothing of the messages:"):
        ChatTemplate("{{ messages[0].content + 1 }}", {}).render([HI])
    endless = ChatTemplate("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {})
    with pytest.raises(RequestError, match="can make nothing of the messages or tools:"):
        endless.render([HI], TOOLS)


def test_the_environment_is_that_of_transformers() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}\n"
        "  {{ m | tojson }}\n"
        "{% endfor %}"
    )
    rendered = ChatTemplate(source, {}).render([{"content": "<é'>"}, HI])
    assert rendered == """  {"content": "<é'>"}\n"""
    assert len(ChatTemplate("{{ strftime_now('%Y') }}", {}).render([])) == 4


def test_generation_blocks_print_what_is_inside() -> None:
    source = "{% for m in messages %}[{% generation %}{{ m.content }}{% endgeneration %}]{% endfor %}"
    assert ChatTemplate(source, {}).render([HI, HI]) == "[Hi][Hi]"


TEXT_ONLY = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}{% endfor %}"
PARTS_ONLY = (
    "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}"
    "{% if p['type'] == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize("source", [TEXT_ONLY, PARTS_ONLY])
def test_content_is_given_in_the_form_that_the_template_reads(source: str) -> None:
    template = ChatTemplate(source, {})
    parts = [{"type": "text", "text": "one"}]
    assert template.render([{"role": "user", "content": "one"}]) == "[user]one"
    assert template.render([{"role": "user", "content": parts}]) == "[user]one"
    two = template.render([{"role": "user", "content": [*parts, *parts]}])
    assert two == ("[user]one\none" if source == TEXT_ONLY else "[user]oneone")
    assert template.render([{"role": "assistant"}]) == "[assistant]"


def test_developer_is_system_where_the_template_knows_no_other_name(template: ChatTemplate) -> None:
    said = {"role": "developer", "content": "Be brief."}
    assert ChatTemplate(TEXT_ONLY, {}).render([said]) == "[system]Be brief."
    assert template.render([said, HI]) == template.render([{**said, "role": "system"}, HI])
    knows = "{% if messages[0].role == 'developer' %}yes{% endif %}"
    assert ChatTemplate(knows, {}).render([said]) == "yes"


def test_a_variable_that_the_template_does_not_know() -> None:
    template = ChatTemplate("{{ 'deep' if enable_thinking else 'plain' }}", {})
    assert template.render([HI], enable_thinking=True) == "deep"
    other = ChatTemplate(TEXT_ONLY, {})
    for asks_for_nothing in (False, None):
        assert other.render([HI], enable_thinking=asks_for_nothing) == "[user]Hi"
    with pytest.raises(RequestError, match=r"chat_template_kwargs\.enable_thinking: .* has no such variable"):
        other.render([HI], enable_thinking=True)


def test_a_template_can_not_reach_the_machine() -> None:
    template = ChatTemplate("{{ messages.__class__.__mro__ }}{{ messages.append(1) }}", {})
    with pytest.raises(RequestError):
        template.render([HI])


def test_where_the_template_is_found(tmp_path: Path) -> None:
    def prompt(tools: Any = None) -> str | None:
        template = ChatTemplate.load(tmp_path)
        return template and template.render([], tools)

    assert prompt() is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"bos_token": {"content": "<b>"}}')
    assert prompt() is None
    config.write_text('{"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}one"}')
    assert prompt() == "<b>one"
    named = [{"name": "only", "template": "two"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert prompt() == "two"
    named += [{"name": "tool_use", "template": "with tools"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert prompt() is None  # none of them says that it is the default
    named += [{"name": "default", "template": "without"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert (prompt(), prompt(TOOLS)) == ("without", "with tools")
    (tmp_path / "chat_template.json").write_text('{"chat_template": "three"}')
    assert prompt() == "three"
    (tmp_path / "chat_template.jinja").write_text("four")
    assert (prompt(), prompt(TOOLS)) == ("four", "four")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("more tools")
    assert (prompt(), prompt(TOOLS)) == ("four", "more tools")


def test_a_damaged_template_is_refused(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"chat template of .* cannot be read"):
        ChatTemplate.load(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"chat template of .* cannot be read"):
        ChatTemplate.load(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% if %}")
    with pytest.raises(CheckpointError, match="error in line 1"):
        ChatTemplate.load(tmp_path)


def test_acorns_template_needs_no_extension() -> None:
    """Engines render it with engines of their own, and mistral.rs's knows no break and no continue."""
    jinja2.Environment(trim_blocks=True, lstrip_blocks=True).parse(
        (ACORN / "chat_template.jinja").read_text()
    )


def test_acorns_template_takes_as_long_for_each_message_of_a_long_conversation() -> None:
    """One that looks ahead or slices takes time with the square of the length."""
    template = ChatTemplate.load(ACORN)
    assert template is not None

    def python_calls(rounds: int) -> int:
        count = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        turns = [HI, *[call(ARGUMENTS), RESULT, HI] * rounds]
        gc.disable()  # its callbacks, which hypothesis and JAX have, would be counted
        sys.setprofile(note)
        try:
            assert template.render(turns).count("<|tool_response>response") == rounds
        finally:
            sys.setprofile(None)
            gc.enable()
        return count

    _, few, more, many = map(python_calls, (1, 10, 20, 30))  # the first fills caches
    assert many - more == more - few


LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BEGUN = [
    "4",
    "It is 4",
    "Hi",
    "model",
    "assistant",
    "It is ",
    "It is\n\n",
    " is it",
    "\n4",
    "\n",
    "漢",
    "{",
    "<turn|",
]


def begun(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize("text", BEGUN)
@pytest.mark.parametrize("other", [None, LLAMA3, CHATML, PARTS_ONLY], ids=["", "llama", "chatml", "parts"])
def test_a_begun_answer_stands_where_it_would_be_written(template, other, text) -> None:
    used = ChatTemplate(other, {"bos_token": "<s>"}) if other else template
    for before in ([HI], [{"role": "system", "content": "4"}, HI, begun("4"), HI]):
        prompt = f"{used.render(before)}{text}"
        if other == PARTS_ONLY:  # it has no generation prompt
            prompt = f"{used.render(before)}[assistant]{text}"
        assert used.render_begun([*before, begun(text)]) == prompt
        assert used.render_begun([*before, begun([{"type": "text", "text": text}])]) == prompt


def test_a_begun_answer_behind_thoughts_results_and_other_parts(template: ChatTemplate) -> None:
    thought = template.render_begun([HI, begun("It", reasoning="Hm.")], enable_thinking=True)
    assert thought == template.render([HI], enable_thinking=True) + "<|channel>thought\nHm.\n<channel|>It"
    answered = [HI, call(ARGUMENTS), RESULT]
    assert (
        template.render_begun([*answered, begun("It is ")], TOOLS)
        == f"{template.render(answered, TOOLS)}It is "
    )
    parts = [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two, "}]
    assert template.render_begun([HI, begun(parts)]) == f"{template.render([HI])}One.Two, "


@pytest.mark.parametrize("text", ["A<channel|>B", "<|channel>thought\nHm."])
def test_a_begun_answer_that_the_template_cuts_is_refused(template: ChatTemplate, text: str) -> None:
    with pytest.raises(RequestError, match="does not print its text as it stands; change it"):
        template.render_begun([HI, begun(text)])
    with pytest.raises(RequestError, match="does not print its text"):
        ChatTemplate(
            "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", {}
        ).render_begun([HI, begun("4")])
