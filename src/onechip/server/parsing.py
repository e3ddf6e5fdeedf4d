"""The bytes of a request's body -> a checked struct, or an error that names field, value and mend."""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from onechip.errors import RequestError
from onechip.models.json_text import decode_json
from onechip.server.listed import listed_values
from onechip.server.neutral import ANY
from onechip.server.nulls import drop_nulls
from onechip.server.schemas import Body

T = TypeVar("T", bound=Body)

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD_NAME = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`")
_STEP = re.compile(r"(\w+)|\[(\d+)\]")


def parse(body: bytes, type: type[T]) -> T:
    """`body` as a `type`.

    Raises:
        RequestError: it is no JSON object in UTF-8, is nested too deep, has unknown or unsupported fields, or
            a value is not allowed.
    """
    _check_encoding(body)
    data = decode_json(body, "The body")
    if not isinstance(data, dict):
        raise RequestError(f"The body must be a JSON object, not {_shown(data)}.")
    drop_nulls(data, type)
    said = _rename(data, type)
    type.complete(data)
    _remove_unsupported(data, type)
    for name, inner in type.NESTED.items():
        if isinstance(data.get(name), dict):
            _remove_unsupported(data[name], inner, f"{name}.")
    try:
        return msgspec.convert(data, type)
    except msgspec.ValidationError as error:
        raise _explained(str(error), data, type, said) from None


def _check_encoding(body: bytes) -> None:
    """Refuse what JSON's standard forbids on the wire and some editors and shells write."""
    if body.startswith(codecs.BOM_UTF8):
        raise RequestError("The body begins with a byte order mark: send UTF-8 without one.")
    # JSON begins with an ASCII character; in wider encodings that has a zero byte for a neighbour.
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in body[:2]:
        raise RequestError("The body is in UTF-16 or UTF-32: send UTF-8.")


def _rename(data: dict[str, Any], type: type[Body]) -> dict[str, str]:
    """Give fields our names; what the client calls those that had others.

    Raises:
        RequestError: two names of one field have two values.
    """
    said: dict[str, str] = {}
    for name in [name for name in data if name in type.OTHER_NAMES]:
        value, field = data.pop(name), type.OTHER_NAMES[name]
        if field not in data:
            said[field] = name
        if data.setdefault(field, value) != value:
            raise RequestError(f"{name} and {field} are two names of one thing; leave one out.", param=name)
    return said


def _remove_unsupported(data: dict[str, Any], type: type[Body], prefix: str = "") -> None:
    """Take fields out that ask for nothing; raise for those that ask for something we lack or do not know.

    Args:
        prefix: stands before the fields' names in errors.
    """
    known = type.__struct_encode_fields__
    unknown = [name for name in data if name not in known and name not in type.NEUTRAL]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        mend = f"did you mean {prefix}{close[0]}?" if close else "leave it out."
        names = ", ".join(prefix + name for name in unknown)
        raise RequestError(
            f"Unknown field: {names}; {mend}", param=prefix + unknown[0], code="unknown_parameter"
        )
    for name in [name for name in data if name not in known]:
        value = data.pop(name)
        if not _is_neutral(value, type.NEUTRAL[name]):
            mend = type.INSTEAD.get(name, "leave it out")
            raise RequestError(
                f"{prefix}{name} is not supported here (it was {_shown(value)}); {mend}.",
                param=prefix + name,
                code="unsupported_parameter",
            )


def _is_neutral(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Whether `value` asks for nothing; 0 and false are different values, 0 and 0.0 are not."""
    if neutral is ANY:
        return True
    same = (value == other and isinstance(value, bool) == isinstance(other, bool) for other in neutral)
    return any(same)


def _explained(complaint: str, data: Any, type: type[Body], said: Mapping[str, str]) -> RequestError:
    """msgspec's complaint, with the field's name first and its value.

    Args:
        said: our names of fields -> the client's, where it has others.
    """
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
    place = re.sub(r"\d+", "", path)
    allowed = type.ALLOWED.get(place)
    if allowed is None and what.startswith("Invalid"):
        allowed = listed_values(type, place)
    expected = f"allowed is {allowed}" if allowed else what.replace("Expected", "expected").replace("`", "")
    path = said.get(path, path)
    return RequestError(f"{path} is {shown}: {expected}.", param=path, code="invalid_value")


def _value_at(path: str, data: Any) -> Any:
    """The value at msgspec's `path`, or the object that holds it where the path does not say which member."""
    for name, index in _STEP.findall(path):
        data = data[name] if name else data[int(index)]
    return data


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_reserved(kwargs: Mapping[str, Any] | None, reserved: frozenset[str]) -> Mapping[str, Any]:
    """`chat_template_kwargs` without surprises: names that the template's caller sets are refused."""
    for name in (kwargs or {}).keys() & reserved:
        param = f"chat_template_kwargs.{name}"
        raise RequestError(f"{param} is set by the server; leave it out.", param=param)
    return kwargs or {}
