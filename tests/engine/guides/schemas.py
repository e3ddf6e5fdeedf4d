"""Hypothesis' JSON schemas, of everything that a grammar of calls can hold arguments to."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

_TEXT = st.sampled_from(
    ["", "a", "b c", "5", "true", "null", "naïve", "漢字", 'say "hi"', "}", "a:b", "<|", "\n"]
)
_NAMES = st.sampled_from(
    ["a", "b", "B", "city", "naïve", "with blank", "x-y", "a:b", "it's", '"q"', "", "[0]"]
)
_NUMBERS = st.one_of(
    st.integers(-50, 50), st.integers(-(10**15), 10**15), st.sampled_from([0.5, -2.25, 1e-7])
)
_SCALARS = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXT)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=2),
    max_leaves=4,
)
_TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
_PATTERNS = ("^a", "b$", "^(yes|no)$", r"^\d{2,3}$", "x|y", r"^[A-Z]\w*$", r"\.", "^a|b$", "[|)]")
_FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "hostname", "uri", "duration")


@st.composite
def _strings(draw: st.DrawFn) -> Schema:
    kind = draw(st.sampled_from(["plain", "length", "pattern", "format"]))
    if kind == "pattern":
        return {"type": "string", "pattern": draw(st.sampled_from(_PATTERNS))}
    if kind == "format":
        return {"type": "string", "format": draw(st.sampled_from(_FORMATS))}
    if kind == "length":
        least = draw(st.integers(0, 5))
        return {"type": "string", "minLength": least, "maxLength": least + draw(st.integers(0, 5))}
    return {"type": "string"}


@st.composite
def _numbers(draw: st.DrawFn) -> Schema:
    node: Schema = {"type": draw(st.sampled_from(["integer", "number"]))}
    least = draw(st.integers(-100, 100))
    if draw(st.booleans()):
        node[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = least
    if draw(st.booleans()):
        node[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = least + draw(st.integers(20, 200))
    if draw(st.integers(0, 3)) == 0:
        node["multipleOf"] = draw(st.sampled_from([1, 2, 5]))
    return node


@st.composite
def _objects(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Schema:
    members = draw(st.dictionaries(_NAMES, inner, max_size=4))
    node: Schema = {"type": "object", "properties": members}
    names = sorted(members)
    node["required"] = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    others = draw(st.sampled_from(["unsaid", "closed", "open", "schema"]))
    if others != "unsaid":
        node["additionalProperties"] = {"closed": False, "open": True}.get(others) or draw(inner)
    if others == "closed":
        node["additionalProperties"] = False
    return node


@st.composite
def _arrays(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> Schema:
    node: Schema = {"type": "array"}
    if draw(st.booleans()):
        node["items"] = draw(inner)
    if draw(st.integers(0, 3)) == 0:
        node["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
        if "items" not in node:
            return node
    least = draw(st.integers(0, 3))
    node["minItems"] = least
    if draw(st.booleans()):
        node["maxItems"] = least + draw(st.integers(0, 3))
    return node


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        _objects(inner),
        _objects(inner),
        _arrays(inner),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda members: {"anyOf": members, "description": "One."}
        ),
    )


_LEAVES = st.one_of(
    _strings(),
    _numbers(),
    st.sampled_from(
        [{"type": "boolean"}, {"type": "null"}, {}, True, {"$ref": "#/$defs/Tree"}, {"$ref": "#"}]
    ),
    st.lists(st.sampled_from(_TYPES), min_size=1, unique=True).map(lambda names: {"type": names}),
    st.lists(_VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    _VALUES.map(lambda value: {"const": value}),
)
_TREE: Schema = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "leaves": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
    },
    "required": ["value"],
}


@st.composite
def parameters(draw: st.DrawFn) -> Schema:
    """The schema of a tool's parameters; that it refers to itself does not make every answer endless."""
    node = draw(_objects(st.recursive(_LEAVES, _compound, max_leaves=8)))
    return {**node, "$defs": {"Tree": _TREE}}
