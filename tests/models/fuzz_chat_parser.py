"""Random answers against what our parsers read in them: `python -m tests.models.fuzz_chat_parser`.

Independent writers put random thoughts, texts and calls into Gemma 4's notation (made_answers.py), half of
them with the oddities that models have, and calls into the JSON of other families (made_json_calls.py), also
behind thoughts between `<think>` and `</think>` or marks like these (made_thoughts.py). Where nothing is odd,
Gemma 4's chat templates must write the same. An answer becomes tokens in random ways, and these come in
random windows. Each case asks:

    is everything read back as it was, and the same however it comes?
    does the chat endpoint say the same, whole and streamed, and does it end where a stop string or, if there
    shall be one, the first call does?
    can what has been sent of a call's arguments be read at any time?
    is an answer that is cut off anywhere a beginning of the whole one?
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jiter
import msgspec

from onechip.models.chat_parser import CallArguments, CallClose, CallOpen, ChatParser, Delta, Reasoning
from onechip.models.chat_template import ChatTemplate
from onechip.models.gguf.file import GgufFile
from onechip.models.gguf.metadata import Metadata
from onechip.models.gguf.tokenizer import tokenizer_config_json, tokenizer_json
from onechip.models.json_calls import JsonCallParser
from onechip.models.think_marks import ThinkMarks
from onechip.models.thought_reader import ThoughtReader
from onechip.models.tokenizer import Tokenizer
from onechip.server.answer import Reader
from tests.models import made_answers, made_json_calls, made_thoughts
from tests.models.made_answers import Answer, Marker, as_templates_write, ids_of, windows
from tests.models.small_tokenizers import LLAMA3, byte_level, save
from tests.server.replay import Replay, Reply
from tests.server.scripted import ACORN
from tests.shared_data import SHARED

PROMPT = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"


THINK_TEMPLATE = (
    "{{ tools }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if enable_thinking %}<think>\n{% endif %}"
)


class Outcome(NamedTuple):
    """What an answer says: text, thoughts, and name and JSON arguments of each call."""

    text: str
    reasoning: str
    calls: list[tuple[str, str]]


def outcome(deltas: Sequence[Delta]) -> Outcome:
    """What `deltas` say; checks that each call is opened once and first, and that arguments can be read.

    What has come of them is read as clients do, which show a call before it is complete.
    """
    text, reasoning, calls, open_call, ids = "", "", [], -1, set()
    for delta in deltas:
        if isinstance(delta, CallOpen):
            assert (open_call, delta.index) == (-1, len(calls)), "a call opens at a wrong place"
            open_call = delta.index
            calls.append((delta.name, ""))
            ids.add(delta.id)
        elif isinstance(delta, CallArguments):
            assert delta.index == open_call, "arguments of a call that is not open"
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.fragment)
            jiter.from_json(calls[-1][1].encode(), partial_mode=True)
        elif isinstance(delta, CallClose):
            assert delta.index == open_call, "a call closes that is not open"
            open_call = -1
        elif isinstance(delta, Reasoning):
            reasoning += delta.text
        else:
            text += delta.text
    assert (open_call, len(ids)) == (-1, len(calls)), "a call is left open, or two have one id"
    return Outcome(text, reasoning, calls)


def check(made: Answer, ids: Sequence[int], parser: Callable[[], Reader], rng: random.Random) -> Outcome:
    """What is read. Raises AssertionError or ValueError, saying what is wrong, if that is not `made`."""

    def read(parts: Sequence[Sequence[int]], cut_off: bool = False) -> Outcome:
        reader = parser()
        deltas = list(chain.from_iterable(reader.push(part) for part in parts))
        return outcome(deltas + reader.finish(cut_off))

    whole = read([ids])
    assert whole.text == made.text, f"text {whole.text!r}"
    assert whole.reasoning == "".join(made.thoughts), f"thoughts {whole.reasoning!r}"
    calls = [(name, decoded(arguments)) for name, arguments in whole.calls]
    assert calls == [(name, decoded(json.dumps(given))) for name, given in made.calls], f"calls {calls}"
    assert read(windows(ids, rng)) == whole, "windows make a difference"
    beginning = ids[: rng.randint(0, len(ids))]
    cut = read([beginning], cut_off=True)
    assert read(windows(beginning, rng), cut_off=True) == cut, "windows make a difference where it is cut off"
    check_beginning(cut, whole, whole_calls=not isinstance(parser(), ChatParser))
    return whole


def check_beginning(cut: Outcome, whole: Outcome, whole_calls: bool) -> None:
    """An answer that was cut off says what the whole one says, as far as it goes.

    Args:
        whole_calls: half a call is text, as in JSON; else the last call may have fewer arguments.
    """
    if not whole_calls:
        assert whole.text.startswith(cut.text.removesuffix("\ufffd")), f"cut off, text {cut.text!r}"
    assert whole.reasoning.startswith(cut.reasoning.removesuffix("\ufffd")), f"cut off: {cut.reasoning!r}"
    complete = len(cut.calls) if whole_calls else max(0, len(cut.calls) - 1)
    assert whole.calls[:complete] == cut.calls[:complete], f"cut off, calls {cut.calls}"
    for (name, _), (last, arguments) in zip(whole.calls[complete:], cut.calls[complete:], strict=False):
        assert name == last
        decoded(arguments)


def decoded(arguments: str) -> Any:
    """Arguments in a form that tells 1 from 1.0 and from true, and one order of members from another."""

    def members(pairs: list[tuple[str, Any]]) -> list[Any]:
        assert len(dict(pairs)) == len(pairs), "the same key twice"
        return ["object", *pairs]

    value = json.loads(arguments, object_pairs_hook=members)
    assert value[0] == "object"
    return json.dumps(value)


def check_template(made: Answer, template: ChatTemplate) -> None:
    """A template writes thoughts and calls as our writer does."""
    calls = [{"type": "function", "function": {"name": n, "arguments": given}} for n, given in made.calls]
    thoughts = "".join(made.thoughts)
    message = {"role": "assistant", "content": "", "tool_calls": calls, "reasoning": thoughts}
    rendered = template.render([{"role": "user", "content": "Hi"}, message])
    written = f"{PROMPT}{as_templates_write(thoughts, made.calls)}<|tool_response>"
    assert not calls or rendered == written, f"a template writes {rendered!r}"


def chat_body(made: Answer) -> dict[str, Any]:
    """A request whose prompt opens the thoughts if `made` needs that: behind a tool's result."""
    messages: list[Any] = [{"role": "user", "content": "Hi"}]
    if made.opened:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "a", "content": "1"})
    thinking = {"enable_thinking": made.opened}
    return {"messages": messages, "tools": made.tools, "chat_template_kwargs": thinking}


def check_server(
    made: Answer, parts: Sequence[Sequence[int]], server: Replay, whole: Outcome, rng: random.Random
) -> None:
    """The chat endpoint says the same, whole and streamed; also where a stop string or a call ends it."""

    def ask(**fields: Any) -> Reply:
        body = chat_body(made) | fields
        reply = server.whole(parts, body)
        assert server.streamed(parts, body) == reply, f"a stream says else than {reply}, {fields}"
        return reply

    reply = ask()
    assert reply[:3] == whole, f"the endpoint says {reply}"
    assert reply.finish == ("tool_calls" if made.calls else "stop"), f"it ended for {reply.finish}"
    assert reply.usage["completion_tokens"] == sum(map(len, parts)), f"{reply.usage}"
    if "text behind calls" in made.odd:
        return
    if made.text:
        at = rng.randrange(len(made.text))
        stop = made.text[at : at + rng.randint(1, 4)]
        expected = (made.text[: made.text.find(stop)], whole.reasoning, [], "stop")
        assert ask(stop=stop)[:4] == expected, f"stop {stop!r}"
    if len(made.calls) > 1:
        expected = (whole.text, whole.reasoning, whole.calls[:1], "tool_calls")
        assert ask(parallel_tool_calls=False)[:4] == expected, "it goes on behind the first call"


class Gemma4:
    """Models with Gemma 4's markers: the parser, the templates and the server."""

    def __init__(self, tokenizer: Tokenizer, templates: Sequence[ChatTemplate]) -> None:
        self.tokenizer = tokenizer
        self._templates = templates
        self._server = Replay(tokenizer, templates[0])

    def made(self, rng: random.Random) -> Answer:
        return made_answers.answer(rng)

    def check(self, made: Answer, ids: Sequence[int], rng: random.Random) -> None:
        prompt = self.tokenizer.encode(PROMPT + "<|channel>thought\n" * made.opened)
        whole = check(made, ids, lambda: ChatParser(self.tokenizer, made.tools, prompt), rng)
        end = ids_of([made.end], self.tokenizer, rng)
        check_server(made, windows([*ids, *end], rng), self._server, whole, rng)
        if not made.odd:
            for template in self._templates:
                check_template(made, template)

    def close(self) -> None:
        self._server.close()


class JsonCalls:
    """Models that write calls as JSON, with a vocabulary of Llama 3's kind."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer = Tokenizer.load(save(byte_level(LLAMA3), Path(folder)), [])

    def made(self, rng: random.Random) -> Answer:
        return made_json_calls.answer(rng)

    def check(self, made: Answer, ids: Sequence[int], rng: random.Random) -> None:
        check(made, ids, lambda: JsonCallParser(self.tokenizer, made.tools), rng)

    def close(self) -> None:
        pass


class ThinkMarked:
    """Models that write thoughts between marks, and calls as JSON behind them.

    Args:
        kind: what marks are: spelled in ordinary tokens, tokens, or special tokens.
    """

    KINDS = ("spelled", "tokens", "special")

    def __init__(self, kind: str) -> None:
        open, close = ("[THINK]", "[/THINK]") if kind == "special" else ("<think>", "</think>")
        backend = byte_level(LLAMA3)
        backend.add_tokens([open, close] if kind == "tokens" else [])
        backend.add_special_tokens([open, close] if kind == "special" else [])
        with tempfile.TemporaryDirectory() as folder:
            self.tokenizer = Tokenizer.load(save(backend, Path(folder)), [])
        self._written = (open, close) if kind == "spelled" else (Marker(open), Marker(close))
        source = THINK_TEMPLATE.replace("<think>", open)
        marks = ThinkMarks.of(self.tokenizer, source)
        assert marks is not None
        self._marks = marks
        self._server = Replay(self.tokenizer, ChatTemplate(source, {}))

    def made(self, rng: random.Random) -> Answer:
        return made_thoughts.answer(rng, self._written)

    def check(self, made: Answer, ids: Sequence[int], rng: random.Random) -> None:
        prompt = self.tokenizer.encode("Hi" + f"{self._marks.open}\n" * made.opened)

        def reader() -> ThoughtReader:
            calls = JsonCallParser(self.tokenizer, made.tools)
            return ThoughtReader(self.tokenizer, self._marks, prompt, calls)

        whole = check(made, ids, reader, rng)
        end = ids_of([made.end], self.tokenizer, rng)
        check_server(made, windows([*ids, *end], rng), self._server, whole, rng)

    def close(self) -> None:
        self._server.close()


Family = Gemma4 | JsonCalls | ThinkMarked


def fuzz(family: Family, cases: range, seed: int) -> Counter[str]:
    """Print the cases that fail; how many there were of what."""
    counts: Counter[str] = Counter(failures=0)
    for case in cases:
        rng = random.Random(f"{seed}:{case}")
        made = family.made(rng)
        ids = ids_of(made.pieces, family.tokenizer, rng)
        counts.update(["cases", *made.odd], calls=len(made.calls), tokens=len(ids))
        try:
            family.check(made, ids, rng)
        except (AssertionError, ValueError) as error:
            counts["failures"] += 1
            print(f"FAILS, case {case}: {error}\n  {made.spelled()!r}\n  {made}\n")
    return counts


def vocabulary(file: Path) -> Tokenizer:
    """The tokenizer of a GGUF file."""
    metadata = Metadata.read([GgufFile(file)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer_json(metadata)))
        config = msgspec.json.encode(tokenizer_config_json(metadata))
        (folder / "tokenizer_config.json").write_bytes(config)
        return Tokenizer.load(folder, [])


def templates(official: Path) -> list[ChatTemplate]:
    """Acorn's, and the official one where it is at hand."""
    own = ChatTemplate.load(ACORN)
    assert own is not None
    return [own, ChatTemplate(official.read_text(), {"bos_token": "<bos>"})] if official.exists() else [own]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--cases", type=int, default=20_000)
    words.add_argument("--first", type=int, default=0, help="number of the first case")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--vocabulary", type=Path, help="a GGUF file with another tokenizer than acorn's")
    words.add_argument("--template", type=Path, default=SHARED / "gemma4_chat_template.jinja")
    words.add_argument("--json", action="store_true", help="calls as JSON instead of Gemma 4's notation")
    words.add_argument(
        "--think", choices=ThinkMarked.KINDS, help="thoughts between such marks, calls as JSON"
    )
    given = words.parse_args()
    if given.json:
        family: Family = JsonCalls()
    elif given.think:
        family = ThinkMarked(given.think)
    else:
        tokenizer = vocabulary(given.vocabulary) if given.vocabulary else Tokenizer.load(ACORN, [1])
        family = Gemma4(tokenizer, templates(given.template))
    counts = fuzz(family, range(given.first, given.first + given.cases), given.seed)
    family.close()
    for name, count in counts.most_common():
        print(f"{count:>12,}  {name}")
    raise SystemExit(1 if counts["failures"] else 0)


if __name__ == "__main__":
    main()
