"""What a JSON schema says of a string -> regexes, as llguidance's dialect of Lark has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import llguidance

_ANY = "(?s:.*)"
_SYNTAX = re.compile(r"\\.|[\[\]()|]", re.DOTALL)
"""What is escaped, which is passed over, or else what opens, closes and divides."""

_DATE = (
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = f"{_LABEL}(?:\\.{_LABEL}){{0,7}}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX = "[0-9a-fA-F]"
_DAYS = "[0-9]{1,6}[DW]|[0-9]{1,4}Y(?:[0-9]{1,4}M)?(?:[0-9]{1,6}D)?|[0-9]{1,4}M(?:[0-9]{1,6}D)?"
_HOURS = "T(?:[0-9]{1,6}H(?:[0-9]{1,6}M)?|[0-9]{1,6}M(?:[0-9]{1,6}S)?|[0-9]{1,6}S)"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:(?:{_DAYS})(?:{_HOURS})?|{_HOURS})",
    "email": f"[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@{_HOST}",
    "hostname": _HOST,
    "ipv4": f"{_BYTE}(?:\\.{_BYTE}){{3}}",
    "ipv6": f"(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}",
    "uuid": f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "uri": "[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:\\/?#@!$&'()*+,;=%-]+",
}
"""Formats of JSON Schema -> what is written of them; less than the RFCs allow where that is hardly used
(IPv6 without "::", no 29th of February).
"""


def search(pattern: str) -> str:
    """A regex for all texts in which JSON Schema's `pattern` is found somewhere.

    An automaton has no anchors, so they become the lack of what may stand before and behind.

    Raises:
        ValueError: `pattern` is no regex, or has what an automaton cannot do; the message says what.
    """
    found = "|".join(_padded(alternative) for alternative in _alternatives(pattern))
    # As in ECMAScript, \d and \w are ASCII.
    found = llguidance.regex_to_lark(found, use_ascii="dw")
    error = llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(f"start: /{found}/"))
    if error:
        raise ValueError(regex_reason(error))
    return found


def regex_reason(message: str) -> str:
    """What llguidance has against a regex, of a message such as "at 1(8): invalid regex ... error: unclosed
    group". Its place is left out: it is in a grammar that is ours.
    """
    return message.split("\n   1 | ")[0].rpartition("error: ")[2].rpartition("(in regex): ")[2]


def _padded(alternative: str) -> str:
    """An alternative with any text before and behind, unless it is anchored there."""
    before, behind = _ANY, _ANY
    if alternative.startswith("^"):
        before, alternative = "", alternative[1:]
    body = alternative.removesuffix("$")
    if body != alternative and (len(body) - len(body.rstrip("\\"))) % 2 == 0:  # it is not escaped
        behind, alternative = "", body
    return f"{before}(?:{alternative}){behind}"


def _alternatives(pattern: str) -> Iterator[str]:
    """What stands between the bars of a regex that are in no group and no class."""
    depth, in_class, start = 0, False, 0
    for found in _SYNTAX.finditer(pattern):
        character = found[0]
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "|" and depth == 0:
            yield pattern[start : found.start()]
            start = found.end()
    yield pattern[start:]
