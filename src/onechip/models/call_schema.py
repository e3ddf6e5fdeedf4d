"""JSON schemas -> rules for values in Gemma 4's notation of calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onechip.models.call_notation import ANY_TEXT, INTEGER, NUMBER, Rules, in_order, literal
from onechip.models.json_grammar import check_json_schema, json_rule
from onechip.models.schema_limits import SchemaError, check_limits
from onechip.models.schema_merge import (
    Conflict,
    additional,
    assertions,
    merged,
    overlapping,
    required_names,
)
from onechip.models.string_forms import FORMATS, search
from onechip.models.tool_schema import listed_values, resolve, type_names, value_type

_KEYWORDS = {
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Types -> the keywords that speak of them; they say which types are meant where `type` does not."""

_TYPES = frozenset({*_KEYWORDS, "integer", "boolean", "null"})

_REFUSED = {
    *("not", "if", "then", "else", "$dynamicRef", "$recursiveRef"),
    *("patternProperties", "propertyNames", "unevaluatedProperties"),
    *("dependentRequired", "dependentSchemas", "dependencies"),
    *("contains", "minContains", "maxContains", "uniqueItems", "additionalItems", "unevaluatedItems"),
}
_HARMLESS = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True}
"""Keywords of these that allow everything with this value."""

_LARGEST = 10**15 - 1
"""Of numbers that are bounded on one side only, as models write digits without end. Exact in a float."""

_ENOUGH = 10**9
"""More than any answer has of anything; larger counts are taken for it."""

_MAX_DEPTH = 48
_MAX_STEPS = 5000
"""How deep schemas may be nested, references followed, and how many there may be."""


class ArgumentRules:
    """Makes rules of one tool's schema. A value that they allow satisfies it. Not all that do are allowed:
    members come in one order, and an object whose members are named has others only if the schema says so.
    """

    def __init__(self, rules: Rules, root: Any) -> None:
        """Args: root: the schema of the parameters, the target of `#`."""
        self._rules = rules
        self._root = root
        self._referring: dict[str, str] = {}
        # Of these, the ones that cannot end before the part that is being made does.
        self._inside: frozenset[str] = frozenset()
        self._depth = 0
        self._steps = 0

    def arguments(self) -> str:
        """The object of arguments.

        Raises:
            SchemaError: a part of the schema cannot be held to, or nothing satisfies it.
        """
        check_limits(self._root)
        return self._one_of(self._alternatives(self._joined({"type": "object"}, self._root, ""), ""))

    def _one_of(self, expressions: Sequence[str]) -> str:
        return expressions[0] if len(expressions) == 1 else self._rules.rule(" | ".join(expressions))

    def _of(self, node: Any, where: str) -> str:
        """What satisfies `node`."""
        if node is False:
            raise SchemaError(where, "allows nothing")
        said = assertions(node) if isinstance(node, Mapping) else {}
        if not said:
            return self._rules.any()
        self._steps += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            raise SchemaError(where, "is nested too deep, or needs too many rules")
        refers = "$ref" in said or "allOf" in said
        rule = self._of_referring(said, where) if refers else self._one_of(self._alternatives(said, where))
        self._depth -= 1
        return rule

    def _of_referring(self, node: Mapping[str, Any], where: str) -> str:
        """What satisfies `node`, which may be inside of what it refers to: it is made once."""
        key = json.dumps(node, sort_keys=True)
        if key in self._inside:
            raise SchemaError(where, "must be inside of itself, so that it never ends")
        if key not in self._referring:
            self._referring[key] = name = self._rules.reserve()
            outside, self._inside = self._inside, self._inside | {key}
            alone = node.keys() == {"$ref"}
            rule = self._of(self._target(node["$ref"], where), where) if alone else ""
            self._rules.define(name, rule or self._one_of(self._alternatives(node, where)))
            self._inside = outside
        return self._referring[key]

    def _of_optional(self, node: Any, where: str, optional: bool = True) -> str:
        """What satisfies `node`, which may be left out."""
        inside, self._inside = self._inside, frozenset() if optional else self._inside
        rule = self._of(node, where)
        self._inside = inside
        return rule

    def _target(self, reference: Any, where: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaError(f"{where}.$ref", "is no reference into the same schema (#/...)")
        try:
            return resolve(self._root, reference)
        except LookupError:
            raise SchemaError(f"{where}.$ref", f"is {reference}, which is not there") from None

    def _joined(self, node: Mapping[str, Any], other: Any, where: str) -> Mapping[str, Any]:
        """What satisfies both schemas."""
        try:
            return merged(node, other)
        except Conflict as error:
            raise SchemaError(where, str(error)) from None

    def _flat(self, node: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """`node` with what it refers to, and with all parts of `allOf`, in one."""
        for _ in range(_MAX_DEPTH):
            node = assertions(node)
            if "$ref" in node:
                target = self._target(node.pop("$ref"), where)
                node = self._joined(node, target, where)
            elif "allOf" in node:
                for index, part in enumerate(node.pop("allOf")):
                    node = self._joined(node, part, f"{where}.allOf[{index}]")
            else:
                return node
        raise SchemaError(where, "refers to itself without end")

    def _alternatives(self, node: Mapping[str, Any], where: str) -> list[str]:
        """Rules of which each allows a part of what satisfies `node`."""
        node = self._flat(node, where)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                rest = {key: value for key, value in node.items() if key != keyword}
                return self._of_members(rest, node[keyword], f"{where}.{keyword}", keyword == "oneOf")
        self._check_keywords(node, where)
        listed = listed_values(node)
        return self._typed(node, where) if listed is None else self._listed(node, listed, where)

    def _of_members(
        self, rest: Mapping[str, Any], members: Sequence[Any], where: str, one: bool
    ) -> list[str]:
        """Rules for the members of anyOf or oneOf, each together with what stands beside them."""
        paths = {f"{where}[{index}]": member for index, member in enumerate(members) if member is not False}
        if not paths:
            raise SchemaError(where, "allows nothing")
        if one:
            self._check_exclusive(paths, where)
        return [
            self._of_optional(self._joined(rest, member, path), path, len(paths) > 1)
            for path, member in paths.items()
        ]

    def _check_exclusive(self, paths: Mapping[str, Any], where: str) -> None:
        flat = {
            path: self._flat(member, path) if isinstance(member, Mapping) else {}
            for path, member in paths.items()
        }
        try:
            found = overlapping(flat)
        except Conflict as error:
            raise SchemaError(where, str(error)) from None
        if found:
            first, second = found
            raise SchemaError(
                second, f"may hold together with {first}: use anyOf for alternatives that overlap"
            )

    def _check_keywords(self, node: Mapping[str, Any], where: str) -> None:
        for keyword, value in node.items():
            if keyword in _REFUSED and not (keyword in _HARMLESS and value == _HARMLESS[keyword]):
                raise SchemaError(f"{where}.{keyword}", "cannot be held to")
        for name in self._types(node):
            if name not in _TYPES:
                raise SchemaError(f"{where}.type", f"is {name!r}, which is no type of JSON")

    def _types(self, node: Mapping[str, Any]) -> frozenset[str]:
        """The types that `node` allows; where it does not say, those that its keywords speak of."""
        if node.get("type"):
            types = type_names(node["type"])
        else:
            types = frozenset(
                name for name, keywords in _KEYWORDS.items() if not node.keys().isdisjoint(keywords)
            )
        if "number" in types:
            types -= {"integer"}
        return types | {"null"} if types and node.get("nullable") is True else types

    def _listed(self, node: Mapping[str, Any], listed: Sequence[Any], where: str) -> list[str]:
        """Rules of the values of enum or const that are of a type that `node` allows."""
        for keyword in (keyword for keywords in _KEYWORDS.values() for keyword in keywords):
            if keyword in node:
                raise SchemaError(f"{where}.{keyword}", "cannot be held to beside enum or const")
        types = self._types(node)
        kept = [value for value in listed if not types or value_type(value) in _with_integer(types)]
        if node.get("nullable") is True and None not in kept:
            kept.append(None)
        if not kept:
            raise SchemaError(where, "allows nothing: no listed value is of its type")
        texts = [value for value in kept if isinstance(value, str) and value]
        others = [self._rules.value(value) for value in kept if not (isinstance(value, str) and value)]
        return [self._rules.string(" | ".join(map(literal, texts))), *others] if texts else others

    def _typed(self, node: Mapping[str, Any], where: str) -> list[str]:
        """A rule for each type that `node` allows."""
        types = sorted(self._types(node))
        inside, self._inside = self._inside, frozenset() if len(types) > 1 else self._inside
        rules = [self._of_type(name, node, where) for name in types] or [self._rules.any()]
        self._inside = inside
        return rules

    def _of_type(self, name: str, node: Mapping[str, Any], where: str) -> str:
        if name == "object":
            return self._object(node, where)
        if name == "array":
            return self._array(node, where)
        if name == "string":
            return self._string(node, where)
        if name == "boolean":
            return self._rules.rule('"true" | "false"')
        if name == "null":
            return '"null"'
        return self._number(name, node, where)

    def _object(self, node: Mapping[str, Any], where: str) -> str:
        members: dict[str, Any] = dict(node.get("properties", {}))
        others = additional(node)
        needed = required_names(node)
        for name in needed - members.keys():
            members[name] = others
        pairs = []
        for name in in_order(members):
            path = f"{where}.properties.{name}"
            if members[name] is not False:
                value = self._of_optional(members[name], path, name not in needed)
                pairs.append((f"{self._rules.key(name)} {value}", name in needed))
            elif name in needed:
                raise SchemaError(path, "is required, but nothing may be there")
        least, most = _range(node, "Properties", where)
        if least > len(needed):
            raise SchemaError(f"{where}.minProperties", "cannot be held to beyond what is required")
        if most is not None and (most < len(pairs) or others is not False):
            raise SchemaError(f"{where}.maxProperties", "cannot be held to")
        extra = ""
        if others is not False:
            value = self._of_optional(others, f"{where}.additionalProperties")
            extra = f"{self._rules.free_key(members)} {value}"
        return self._rules.rule(f'"{{" {self._members(pairs, extra)} "}}"')

    def _members(self, pairs: Sequence[tuple[str, bool]], extra: str) -> str:
        """Members in order, with commas between them.

        Args:
            pairs: each member, and whether it must be there.
            extra: what may follow any number of times; "" for nothing.
        """
        first = f'({extra} ("," {extra})*)?' if extra else '""'
        rest = f'("," {extra})*' if extra else '""'
        for pair, needed in reversed(pairs):
            rest_rule = self._rules.rule(rest)
            first = f"{pair} {rest_rule}" if needed else f"{pair} {rest_rule} | {self._rules.rule(first)}"
            rest = f'"," {pair} {rest_rule}' if needed else f'("," {pair})? {rest_rule}'
        return self._rules.rule(first)

    def _array(self, node: Mapping[str, Any], where: str) -> str:
        ahead = node.get("prefixItems", [])
        others = node.get("items", "prefixItems" not in node)
        if isinstance(others, list):
            raise SchemaError(f"{where}.items", "is a list, as in older drafts: call it prefixItems")
        least, most = _range(node, "Items", where)
        if others is False:
            most = len(ahead) if most is None else min(most, len(ahead))
        if most is not None and least > most:
            raise SchemaError(f"{where}.minItems", "is more than there can be")
        elements = [
            self._of_optional(item, f"{where}.prefixItems[{index}]", index >= least)
            for index, item in enumerate(ahead[:most])
        ]
        tail = ""
        if most is None or most > len(elements):
            more, room = least - len(elements), None if most is None else most - len(elements)
            item = self._of_optional(others, f"{where}.items", more <= 0)
            if elements:
                tail = _repeated(f'("," {item})', more, room)
            else:
                tail = f"{item} " + _repeated(f'("," {item})', more - 1, None if room is None else room - 1)
                tail = tail if least else f"({tail})?"
        for index in range(len(elements) - 1, -1, -1):
            element = f'"," {elements[index]}' if index else elements[index]
            tail = self._rules.rule(f"{element} {tail}" if index < least else f"({element} {tail})?")
        return self._rules.rule(f'"[" {tail} "]"')

    def _string(self, node: Mapping[str, Any], where: str) -> str:
        forms = []
        if "pattern" in node:
            try:
                forms.append(search(str(node["pattern"])))
            except ValueError as error:
                raise SchemaError(f"{where}.pattern", f"is no regex that can be held to: {error}") from None
        if "format" in node:
            form = FORMATS.get(str(node["format"]))
            if form is None:
                known = ", ".join(FORMATS)
                raise SchemaError(f"{where}.format", f"is {node['format']!r}; known are {known}")
            forms.append(form)
        least, most = _range(node, "Length", where)
        if most is not None and least > most:
            raise SchemaError(f"{where}.minLength", "is more than maxLength")
        if least or most is not None:
            forms.append(f"(?s:.{_braces(least, most)})")
        return self._rules.rule(self._rules.string(" & ".join(f"/{form}/" for form in forms) or ANY_TEXT))

    def _number(self, name: str, node: Mapping[str, Any], where: str) -> str:
        bounds = {keyword: node[keyword] for keyword in _KEYWORDS["number"] if keyword in node}
        if not bounds:
            return self._rules.terminal(INTEGER if name == "integer" else NUMBER)
        within = all(isinstance(bound, int | float) and abs(bound) < _LARGEST for bound in bounds.values())
        if within and bounds.keys().isdisjoint(("minimum", "exclusiveMinimum")):
            bounds["minimum"] = -_LARGEST
        if within and bounds.keys().isdisjoint(("maximum", "exclusiveMaximum")):
            bounds["maximum"] = _LARGEST
        schema = {"type": name, **bounds}
        try:
            check_json_schema(schema, exact=False)
        except SchemaError as error:
            raise SchemaError(where, f"cannot be held to: {error.reason}") from None
        return self._rules.rule(json_rule(schema))


def _with_integer(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _repeated(expression: str, least: int, most: int | None) -> str:
    """`expression` so many times; llguidance has no repetition whose upper end is 0."""
    return "" if most == 0 else f"{expression}{_braces(max(least, 0), most)}"


def _braces(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"


def _range(node: Mapping[str, Any], counted: str, where: str) -> tuple[int, int | None]:
    """How many there must be and how many there may be, None without end; `counted` such as `Items`."""
    least, most = f"min{counted}", f"max{counted}"
    return (
        _count(node, least, where) if least in node else 0,
        _count(node, most, where) if most in node else None,
    )


def _count(node: Mapping[str, Any], keyword: str, where: str) -> int:
    """The value of a keyword that counts something, `_ENOUGH` at the most."""
    value = node[keyword]
    if type(value) not in (int, float) or value < 0 or value % 1 != 0:
        raise SchemaError(f"{where}.{keyword}", "is no whole number from 0 on")
    return min(int(value), _ENOUGH)
