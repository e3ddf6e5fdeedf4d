"""HTML pages: a template of this folder and its values in, one page that needs no network out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(name: str, notices: Sequence[str], **values: Any) -> str:
    """A page in the common frame (page.html), with report.css in it.

    Args:
        name: of a template that extends page.html.
        notices: what a reader must know first, a sentence each.
        values: that the template names; one that is missing raises jinja2.UndefinedError.
    """
    style = files("onechip.ladder.report").joinpath("report.css").read_text("utf-8")
    return _environment().get_template(name).render(style=style, notices=notices, **values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("onechip.ladder", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
