"""A results folder: manifest.json and journal.jsonl in; summary.json, report.md and report.html out."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from onechip.ladder import journal, manifest
from onechip.ladder.disk import writing
from onechip.ladder.report.html import page
from onechip.ladder.report.markdown import markdown
from onechip.ladder.summary import Summary, summarise


def write_report(folder: Path) -> Summary:
    """Make a ladder's report from its raw records, offline; the same records give the same files.

    Raises:
        LadderError: the folder holds no ladder, or a damaged one, or the disk is full.
    """
    summary = summarise(manifest.load(folder), journal.read_records(folder))
    encoded = msgspec.json.format(msgspec.json.encode(summary), indent=1).decode()
    _replace(folder / "summary.json", encoded + "\n")
    _replace(folder / "report.md", markdown(summary))
    _replace(folder / "report.html", page(summary))
    return summary


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    fresh = path.with_name(path.name + ".new")
    with writing(path, path.parent):
        fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
