"""What stands in a ladder: the words of --engines and --arm in, arms out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from msgspec.structs import replace

from onechip.errors import UsageError
from onechip.ladder.engines import ENGINES
from onechip.ladder.engines.engine import VARIABLE
from onechip.ladder.host import this_host
from onechip.ladder.plan import DEFAULT_ENGINES
from onechip.ladder.records import Arm
from onechip.ladder.target import Target

LISTENING = (
    *("--port", "--host", "--uds", "--serve-ip", "--root-path", "--api-prefix"),
    *("--api-key", "--api-key-file", "--admin-api-key"),
    *("--ssl-keyfile", "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file"),
    *("LLAMA_ARG_PORT", "LLAMA_ARG_HOST", "LLAMA_ARG_API_PREFIX"),
)
"""Flags and variables of engines by which they would listen elsewhere than the ladder asks, or want a key."""
SECRET = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
"""End the names of variables that must not get into a manifest."""
SYNTAX = (
    "--engines takes ENGINE, ENGINE:WORD or openai=URL, separated by commas"
    " (onechip:bf16,onechip:int4,openai=http://127.0.0.1:8000/v1);"
    " --arm takes 'NAME = ENGINE FLAGS...', 'NAME = ENGINE:WORD FLAGS...' or 'NAME = openai URL'"
)


def parse(model: str, engines: str | None, arms: Iterable[str]) -> tuple[Arm, ...]:
    """All arms in the order given, those of `--engines` first; DEFAULT_ENGINES if there are none.

    Raises:
        UsageError: a word is not understood, or two arms have the same name.
    """
    named = [_full(model, text) for text in arms]
    words = engines if engines is not None else ("" if named else DEFAULT_ENGINES)
    found = [_short(model, word.strip()) for word in words.split(",") if word.strip()] + named
    if not found:
        raise UsageError(f"--engines {engines!r} names no engine. {SYNTAX}.")
    names = [arm.name for arm in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"Two arms are called {name!r}; give one another name with --arm 'NAME = ENGINE ...'."
            )
    return tuple(found)


def compared(model: str, words: tuple[str, str], engines: str | None, arms: Iterable[str]) -> tuple[Arm, ...]:
    """The two arms of --compare: words as --engines takes them, or names that --arm gives. A word twice is an
    arm against itself.

    Raises:
        UsageError: a word is not understood, or other arms are given too.
    """
    named = {arm.name: arm for arm in parse(model, "", arms)} if arms else {}
    unused = [name for name in named if name not in words]
    if engines is not None or unused:
        other = f"--engines {engines}" if engines is not None else f"--arm {unused[0]!r}"
        raise UsageError(f"--compare runs {words[0]} and {words[1]} alone: leave {other} out.")
    a, b = (named[word] if word in named else _short(model, word.strip()) for word in words)
    if a.name == b.name:
        a, b = replace(a, name=f"{a.name} A"), replace(b, name=f"{b.name} B")
    return a, b


def check_ready(arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """The arms themselves.

    Raises:
        UsageError: an engine is not installed, or does not run on this machine.
    """
    for engine in dict.fromkeys(arm.engine for arm in arms if arm.url is None):
        hindrance = ENGINES[engine].hindrance(this_host())
        if hindrance is not None:
            raise UsageError(hindrance)
    return arms


def _short(model: str, word: str) -> Arm:
    """ENGINE, ENGINE:WORD or openai=URL."""
    head, equals, url = word.partition("=")
    if equals:
        return _remote(f"{head} {Target.parse(url).host}:{Target.parse(url).port}", head, model, url)
    engine, _, variant = word.partition(":")
    _check(engine, word)
    if ENGINES[engine].launch is None:
        raise UsageError(
            f"--engines {word}: {engine} needs the URL of a running server, {engine}=http://HOST:PORT/v1."
        )
    return _launched(f"{engine} {variant}".strip(), model, word, ())


def _launched(name: str, model: str, word: str, flags: tuple[str, ...]) -> Arm:
    """An arm of ENGINE or ENGINE:WORD; the user's flags go behind the variant's."""
    engine, _, variant = word.partition(":")
    variants = ENGINES[engine].variants
    if variant and variant not in variants:
        raise UsageError(f"{word}: {engine} takes one of these words: {', '.join(variants)}.")
    meant = variants[variant or next(iter(variants))]
    return Arm(name, engine, model, (*meant.flags, *flags), form=meant.form, remark=meant.remark)


def _full(model: str, text: str) -> Arm:
    """NAME = ENGINE[:WORD] FLAGS..., or NAME = openai URL."""
    name, equals, rest = text.partition("=")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise UsageError(f"--arm {text!r} cannot be read ({error}): close its quotes.") from None
    if not equals or not name.strip() or not words:
        raise UsageError(f"--arm {text!r} is not understood. {SYNTAX}.")
    word, *flags = words
    engine = word.partition(":")[0]
    _check(engine, text)
    if ENGINES[engine].launch is not None:
        _check_flags(name.strip(), engine, flags)
        return _launched(name.strip(), model, word, tuple(flags))
    if len(flags) != 1:
        raise UsageError(f"--arm {text!r}: {engine} takes exactly one URL.")
    return _remote(name.strip(), engine, model, flags[0])


def _check_flags(name: str, engine: str, flags: Iterable[str]) -> None:
    """Raises UsageError for what would take the engine out of reach, or put a key into the results."""
    for flag in flags:
        word, equals, _ = flag.partition("=")
        if word in LISTENING:
            raise UsageError(
                f"--arm {name!r} has {word}: the ladder chooses where {engine} listens, on 127.0.0.1 and"
                f" without a key. Leave it out, or start {engine} yourself and give openai=URL."
            )
        if equals and VARIABLE.match(flag) and word.endswith(SECRET):
            raise UsageError(
                f"--arm {name!r} has {word}, which the results would keep: set it where you start the ladder."
            )


def _remote(name: str, engine: str, model: str, url: str) -> Arm:
    _check(engine, name)
    if ENGINES[engine].launch is not None:
        raise UsageError(
            f"--engines {engine}={url}: {engine} is started by the ladder and takes no URL; use openai={url}."
        )
    Target.parse(url)
    return Arm(name, engine, model, url=url)


def _check(engine: str, text: str) -> None:
    if engine not in ENGINES:
        raise UsageError(
            f"{text!r}: there is no engine {engine!r}; there are {', '.join(ENGINES)}. {SYNTAX}."
        )
