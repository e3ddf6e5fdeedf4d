"""The form that the text of an answer must have, whichever field says it -> a grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from onechip.errors import RequestError
from onechip.models.json_text import decode_json
from onechip.server.schemas import GenerationBody, JsonObjectFormat, JsonSchemaFormat, TypedGrammar
from onechip.server.work import GRAMMARS

if TYPE_CHECKING:
    from onechip.engine.guides.grammar import Grammar, Grammars

Kind = Literal["json_object", "json_schema", "regex", "choice", "ebnf"]


@dataclass(frozen=True, slots=True)
class Structure:
    """A form of text.

    Attributes:
        content: a schema, a pattern, a list of texts or a grammar; None for any JSON object.
        param: the field that asks for it.
    """

    kind: Kind
    content: Any
    param: str

    async def grammar(self, grammars: Grammars) -> Grammar:
        """Its grammar, compiled in another thread.

        Raises:
            RequestError: it cannot be compiled.
        """
        return await GRAMMARS.run(self._compiled, grammars)

    def _compiled(self, grammars: Grammars) -> Grammar:
        if self.kind == "json_object":
            return grammars.json_object(self.param)
        if self.kind == "json_schema":
            return grammars.json_schema(self.content, self.param)
        if self.kind == "regex":
            return grammars.regex(self.content, self.param)
        if self.kind == "choice":
            return grammars.choice(self.content, self.param)
        return grammars.ebnf(self.content, self.param)


def structure_of(body: GenerationBody) -> Structure | None:
    """What a body of OpenAI's asks for, in its own field or in those of other servers.

    The same may be said twice: guidance says it under vLLM's old name and under its new one.

    Raises:
        RequestError: it asks for several things at once, or for a schema that is no JSON.
    """
    asked = [*_response_format(body), *_structured_outputs(body), *_single_fields(body), *_typed(body)]
    others = [one for one in asked[1:] if (one.kind, one.content) != (asked[0].kind, asked[0].content)]
    if others:
        names = " and ".join(one.param for one in (asked[0], *others))
        raise RequestError(f"{names}: an answer has one form; leave all but one out.", param=others[0].param)
    return asked[0] if asked else None


def schema_of(value: str | dict[str, Any] | bool, param: str) -> Structure:
    """A schema, or its JSON text."""
    if isinstance(value, str):
        value = decode_json(value, param, param)
        if not isinstance(value, dict | bool):
            raise RequestError(f"{param} must be a JSON schema, an object.", param=param)
    return Structure("json_schema", value, param)


def json_object_of(form: JsonObjectFormat, param: str) -> Structure:
    """Any object, or such as satisfies its schema."""
    if form.schema is None:
        return Structure("json_object", None, param)
    return Structure("json_schema", form.schema, f"{param}.schema")


def _response_format(body: GenerationBody) -> list[Structure]:
    form = body.response_format
    if isinstance(form, JsonObjectFormat):
        return [json_object_of(form, "response_format")]
    if isinstance(form, JsonSchemaFormat):
        return [schema_of(form.json_schema.schema, "response_format.json_schema.schema")]
    return []


def _structured_outputs(body: GenerationBody) -> list[Structure]:
    asked, field = body.structured_outputs, "structured_outputs"
    if asked is None:
        return []
    found = [
        None if asked.json is None else schema_of(asked.json, f"{field}.json"),
        None if asked.regex is None else Structure("regex", asked.regex, f"{field}.regex"),
        None if asked.choice is None else Structure("choice", asked.choice, f"{field}.choice"),
        None if asked.grammar is None else Structure("ebnf", asked.grammar, f"{field}.grammar"),
        Structure("json_object", None, f"{field}.json_object") if asked.json_object else None,
    ]
    return [one for one in found if one is not None]


def _single_fields(body: GenerationBody) -> list[Structure]:
    """vLLM's older fields, SGLang's and llama.cpp's."""
    found = [
        schema_of(value, name)
        for name in ("guided_json", "json_schema")
        if (value := getattr(body, name)) is not None
    ]
    kinds: dict[str, Kind] = {
        "guided_regex": "regex",
        "guided_choice": "choice",
        "guided_grammar": "ebnf",
        "regex": "regex",
        "ebnf": "ebnf",
        "grammar": "ebnf",
    }
    values = {name: getattr(body, name) for name in kinds}
    return found + [
        Structure(kinds[name], value, name)
        for name, value in values.items()
        if value is not None and not isinstance(value, TypedGrammar)
    ]


def _typed(body: GenerationBody) -> list[Structure]:
    """mistral.rs's grammar."""
    asked, param = body.grammar, "grammar.value"
    if not isinstance(asked, TypedGrammar):
        return []
    if asked.type == "json_schema":
        return [schema_of(asked.value, param)]
    if not isinstance(asked.value, str):
        raise RequestError(f"{param} must be a text where grammar.type is {asked.type}.", param=param)
    return [Structure("regex" if asked.type == "regex" else "ebnf", asked.value, param)]
