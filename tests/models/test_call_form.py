"""Calls of earlier turns, in the form that a template was written for."""

from __future__ import annotations

from typing import Any

import pytest

from onechip.errors import RequestError
from onechip.models.chat_template import ChatTemplate

LOOP = "{% for m in messages %}{% for c in m.tool_calls or () %}%s{% endfor %}{% endfor %}"
OBJECTS = {
    "as JSON": LOOP.replace("%s", "{{ c.function.arguments | tojson }}"),
    "by items": LOOP.replace(
        "%s", "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}"
    ),
    "either": LOOP.replace(
        "%s", "{% set a = c.function.arguments %}{{ a if a is string else 'object ' ~ a | tojson }}"
    ),
}
TEXTS = {
    "joined": LOOP.replace("%s", "{{ '<call>' + c['function']['arguments'] + '</call>' }}"),
    "printed": LOOP.replace("%s", "<call>{{ c.function.arguments }}</call>"),
}
NINE = (
    "{% for m in messages %}"
    "{% for c in m.tool_calls or () %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}"
    "{{ c.function | tojson }} {{ c.id }}\n"
    "{% endfor %}"
    "{% if m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}"
    "{{ m.content }} for {{ m.tool_call_id }}\n"
    "{% endif %}"
    "{% endfor %}"
)
USER = {"role": "user", "content": "Hi"}


def turn(arguments: Any, call_id: str = "call_7") -> list[dict[str, Any]]:
    """A call and its result."""
    function = {"name": "f", "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]},
        {"role": "tool", "tool_call_id": call_id, "content": "sun"},
    ]


def rendered(source: str, *said: dict[str, Any]) -> str:
    return ChatTemplate(source, {}).render([USER, *said])


@pytest.mark.parametrize("arguments", ['{"a": "ü"}', {"a": "ü"}])
@pytest.mark.parametrize(
    ("form", "shown"), [("as JSON", '{"a": "ü"}'), ("by items", "a=ü;"), ("either", 'object {"a": "ü"}')]
)
def test_arguments_are_objects(form: str, shown: str, arguments: Any) -> None:
    assert rendered(OBJECTS[form], *turn(arguments)) == shown


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a":  "ü"}', '{"a":  "ü"}'),
        ({"a": "ü"}, '{"a": "ü"}'),
        ("", "{}"),
        (None, "{}"),
        ("null", "{}"),
    ],
)
def test_arguments_are_text_where_the_template_joins_or_prints_them(
    form: str, arguments: Any, text: str
) -> None:
    assert rendered(TEXTS[form], *turn(arguments)) == f"<call>{text}</call>"


@pytest.mark.parametrize("source", [*OBJECTS.values(), *TEXTS.values()])
@pytest.mark.parametrize("arguments", ["[1]", "{"])
def test_arguments_that_are_no_object_are_refused_whatever_the_form(source: str, arguments: str) -> None:
    with pytest.raises(RequestError, match=r"messages\[1\]\.tool_calls\[0\]\.function\.arguments"):
        rendered(source, *turn(arguments))


def test_ids_are_nine_letters_and_digits_where_the_template_wants_them() -> None:
    first, second, _ = rendered(NINE, *turn("{}", "call_0123456789abcdef")).split("\n")
    made = first.rpartition(" ")[2]
    assert (len(made), made.isalnum()) == (9, True)
    assert second == f"sun for {made}"
    longer = rendered(NINE, *turn("{}", "call_0123456789abcdef"), *turn("{}", "call_x")).split("\n")
    assert longer[:2] == [first, second]
    assert longer[3] != second
    assert "abcdefgh9" in rendered(NINE, *turn("{}", "abcdefgh9"))


def test_other_ids_stay_as_they_are() -> None:
    source = LOOP.replace("%s", "{{ c.id }} {{ c.function.arguments | tojson }}")
    assert rendered(source, *turn("{}", "toolu_1")) == "toolu_1 {}"


@pytest.mark.parametrize("said", [{}, {"content": None}])
@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("{{ '' if m.content is none else '<' + m.content + '>' }}", ""),
        ("{{ '<' + m.content + '>' }}", "<>"),
        ("<{{ m.content }}>", "<>"),
        ("{% if m.content %}<{{ m.content }}>{% endif %}", ""),
    ],
    ids=["unless null", "joined", "printed", "if any"],
)
def test_calls_without_content(printed: str, shown: str, said: dict[str, None]) -> None:
    """Clients send null or nothing at all."""
    source = (
        "{% for m in messages if m.tool_calls %}"
        + printed
        + "{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    )
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    assert rendered(source, message | said) == f"{shown}{{}}"
    assert "<Well>" in rendered(source, message | {"content": "Well"})


def test_a_template_that_fails_on_every_form_says_so_when_it_is_asked() -> None:
    template = ChatTemplate(LOOP.replace("%s", "{{ raise_exception('no calls') }}"), {})
    assert template.render([USER]) == ""
    with pytest.raises(RequestError, match="no calls"):
        template.render([USER, *turn("{}")])
