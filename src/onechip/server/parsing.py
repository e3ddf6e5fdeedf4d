"""The bytes of a request's body -> a checked struct, or an error that names field, value and mend."""

from __future__ import annotations

import codecs
import difflib
import re
from typing import Any, TypeVar

import msgspec

from onechip.errors import RequestError
from onechip.models.json_text import decode_json

Body = TypeVar("Body", bound=msgspec.Struct)

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "store": (False,),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "include_stop_str_in_output": (False,),
    "continue_final_message": (False,),
    "spaces_between_special_tokens": (True,),
    "add_special_tokens": (),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "web_search_options": (),
    "functions": (),
    "function_call": (),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "response_format": (),
    "length_penalty": (1, 1.0),
    "use_beam_search": (False,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "return_token_ids": (False,),
    "priority": (0,),
}
"""Fields of OpenAI's and vLLM's APIs that we do not support -> values that ask for nothing (as null does)."""

_ALLOWED = {
    "messages[].role": "system, developer, user, assistant or tool",
    "messages[].content[].type": "text, since this server reads text only",
    "messages[].tool_calls[].type": "function",
    "tools[].type": "function",
    "tools[].function.strict": "false, since arguments are not forced to keep to the schema",
    "tool_choice": "auto or none; required calls and named tools are not supported",
    "response_format.type": "text; JSON modes are not supported",
}
"""What may stand in a field whose values are listed."""

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD_NAME = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`")
_STEP = re.compile(r"(\w+)|\[(\d+)\]")


def parse(body: bytes, type: type[Body]) -> Body:
    """`body` as a `type`.

    Raises:
        RequestError: it is no JSON object in UTF-8, is nested too deep, has unknown or unsupported fields, or
            a value is not allowed.
    """
    _check_encoding(body)
    data = decode_json(body, "The body")
    if not isinstance(data, dict):
        raise RequestError(f"The body must be a JSON object, not {_shown(data)}.")
    _remove_unsupported(data, type)
    try:
        return msgspec.convert(data, type)
    except msgspec.ValidationError as error:
        raise _explained(str(error), data) from None


def _check_encoding(body: bytes) -> None:
    """Refuse what JSON's standard forbids on the wire and some editors and shells write."""
    if body.startswith(codecs.BOM_UTF8):
        raise RequestError("The body begins with a byte order mark: send UTF-8 without one.")
    # JSON begins with an ASCII character; in wider encodings that has a zero byte for a neighbour.
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in body[:2]:
        raise RequestError("The body is in UTF-16 or UTF-32: send UTF-8.")


def _remove_unsupported(data: dict[str, Any], type: type[msgspec.Struct]) -> None:
    """Take fields out that ask for nothing; raise for those that ask for something we lack or do not know."""
    known = type.__struct_fields__
    unknown = [name for name in data if name not in known and name not in _NEUTRAL]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        mend = f"did you mean {close[0]}?" if close else "leave it out."
        names = ", ".join(unknown)
        raise RequestError(f"Unknown field: {names}; {mend}", param=unknown[0], code="unknown_parameter")
    for name in [name for name in data if name not in known]:
        value = data.pop(name)
        if not _is_neutral(value, _NEUTRAL[name]):
            raise RequestError(
                f"{name} is not supported here (it was {_shown(value)}); leave it out.",
                param=name,
                code="unsupported_parameter",
            )


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether `value` asks for nothing; 0 and false are different values, 0 and 0.0 are not."""
    same = (value == other and isinstance(value, bool) == isinstance(other, bool) for other in neutral)
    return value is None or any(same)


def _explained(complaint: str, data: Any) -> RequestError:
    """msgspec's complaint, with the field's name first and its value."""
    match = _COMPLAINT.fullmatch(complaint)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    field = _FIELD_NAME.fullmatch(what)
    if field:
        param = f"{path}.{field[1]}".lstrip(".")
        if "missing" in what:
            return RequestError(f"{param} is missing.", param=param, code="missing_parameter")
        return RequestError(f"Unknown field: {param}; leave it out.", param=param, code="unknown_parameter")
    shown = _shown(_value_at(path, data))
    allowed = _ALLOWED.get(re.sub(r"\d+", "", path))
    expected = f"allowed is {allowed}" if allowed else what.replace("Expected", "expected").replace("`", "")
    return RequestError(f"{path} is {shown}: {expected}.", param=path, code="invalid_value")


def _value_at(path: str, data: Any) -> Any:
    """The value at msgspec's `path`, or the object that holds it where the path does not say which member."""
    for name, index in _STEP.findall(path):
        data = data[name] if name else data[int(index)]
    return data


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_reserved(kwargs: dict[str, Any] | None, reserved: frozenset[str]) -> dict[str, Any]:
    """`chat_template_kwargs` without surprises: names that the template's caller sets are refused."""
    for name in (kwargs or {}).keys() & reserved:
        param = f"chat_template_kwargs.{name}"
        raise RequestError(f"{param} is set by the server; leave it out.", param=param)
    return kwargs or {}
