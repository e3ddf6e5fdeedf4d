"""GBNF in Lark: what it allows, and where it is wrong."""

from __future__ import annotations

import re

import pytest

from onechip.models.gbnf import gbnf_to_lark, is_gbnf
from tests.engine.guides.test_grammar import holds
from tests.engine.guides.vocabularies import grammars

CHESS = """# a game
root ::= (
  # the first move
  "1. " move " " move "\\n"
  ([1-9] [0-9]? ". " move " " move "\\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""
JSON = r"""root   ::= value
value  ::= object | array | string | number | "true"
  | "false"
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}"
array  ::= "[" ws ( value ("," ws value)* )? "]"
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]+)?
ws     ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= ([0-9]+)? "z"', ["z", "12z"], ["", "1"]),
        ('root ::= ("a"*)*', ["", "aaa"], ["b"]),
        ('root ::= ("x"?)+ "y"', ["y", "xxy"], ["x"]),
        ('root ::= ("a"{1,10}){2}', ["aa", "a" * 20], ["a", "a" * 21]),
        ('root ::= "a" {2} *', ["", "aa", "aaaa"], ["a", "aaa"]),
        ('root ::= "a"{0} "b"{0,2} "c"{2,}', ["cc", "bbccc"], ["acc", "bbbcc", "c"]),
        ("root ::= start\nstart ::= T1\nT1 ::= r1\nr1 ::= \"q\"", ["q"], ["", "qq"]),
        ('root ::= Foo foo\nFoo ::= "x"\nfoo ::= "y"', ["xy"], ["xx", "yx"]),
        ('root ::= "\\U0001F600\\u0042\\x41\\t" [\\U0001F600-\\U0001F64F\\u0042\\x41]',
         ["😀BA\t😁", "😀BA\tB", "😀BA\tA"], ["😀BA\tC", "😀AA\tB"]),
        ('root ::= "start: ::=" | "/[]" "\\\\\\""', ["start: ::=", '/[]\\"'], ["/"]),
        ("root ::= [a\\-c/\\]\\\\] [^a-c] [x-]", ["-d-", "/\nx", "\\]x", "]^-"], ["bdx", "-ax", "-dy"]),
        ("root ::= .  # any\n", ["a", "\n", "漢"], ["", "ab"]),
        ('root ::= "a" |\n  "b" |', ["a", "b", ""], ["ab"]),
        ("root ::= [a-z]* \"z\"", ["z", "abz"], ["ab"]),
        ('root ::= "(" root ")" | word\nword ::= [a-z]+', ["((ab))", "a"], ["(a", "()"]),
        (CHESS, ["1. e4 e5\n2. Nf3 O-O-O\n"], ["1. e4 e5\n", "1. e9 e5\n2. a1 a1\n"]),
        (JSON, ['{"a": [1, -2.5, "x\\n\\u00e9\\"", {}],"b":true}', "[]", '"["'], ["{,}", "01", '"\n"']),
    ],
)  # fmt: skip
def test_it_allows_what_llama_cpp_allows(grammar: str, good: list[str], bad: list[str]) -> None:
    assert is_gbnf(grammar)
    made = grammars("acorn")[0].ebnf(grammar, "grammar")
    for text in good:
        assert holds("acorn", made, text), text
    for text in bad:
        assert not holds("acorn", made, text), text


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ('root ::= "a" "b', "at 1(14): this text is not closed"),
        ('# x\nroot ::= ("a"\n  [b-', "at 3(3): this class is not closed"),
        ('root ::= ("a" | "b"\n', "at 1(10): this group is not closed"),
        ('root ::= "a" )', "at 1(14): expected a line's end"),
        ('root ::= "a\\q"', "at 1(12): \\q is no escape"),
        ('root ::= "\\ud800"', "at 1(11): \\ud800 is no character"),
        ('root ::= "a"{2,1}', "at 1(13): the most is less than the least"),
        ('root ::= "a"{x}', "at 1(13): expected how often, such as {2}, {2,} or {2,5}"),
        ('root ::= "a"{20000}', "at 1(13): more than 10000 repetitions"),
        ("root ::= []", "at 1(10): this class is empty"),
        ("root ::= [z-a]", "at 1(10): the range from 'z' to 'a' is empty"),
        ('root ::= "a" * b\nx ::= "y"', "at 1(16): there is no rule b"),
        ('root ::= "a"\nroot ::= "b"', "at 2(1): the rule root is defined twice"),
        ('x ::= "a"', "at 1(1): there is no rule root, which is where an answer begins"),
        ("root ::= 'a'", "at 1(10): expected a text, a class, a group or a rule, not \"'\""),
        ('root ::= "a"\n\n= "b"', "at 3(1): expected a rule, such as root ::= ..."),
        ('root ::= x\nx = "b"', "at 2(3): expected ::="),
        ("root ::= " + "(" * 101 + '"a"' + ")" * 101, "at 1(110): groups are nested more than 100 deep"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(grammar: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        gbnf_to_lark(grammar)


def test_lark_is_no_gbnf() -> None:
    assert not is_gbnf('start: "a ::= b" x\nx: /::=/\n# a ::= b')
