"""A results folder: manifest.json and journal.jsonl in; summary.json, the report and CSV files out."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from onechip.ladder import claims, journal, manifest
from onechip.ladder.disk import writing
from onechip.ladder.prices import Prices, load
from onechip.ladder.report.findings import findings
from onechip.ladder.report.html import page
from onechip.ladder.report.markdown import markdown
from onechip.ladder.report.sheets import figures_csv, requests_csv
from onechip.ladder.summary import Summary, summarise


def write_report(folder: Path, prices: Prices | None = None) -> Summary:
    """Make a ladder's report from its raw records, offline; the same records give the same files.

    Args:
        prices: of chips; None: those of the package.

    Raises:
        LadderError: the folder holds no ladder, or a damaged one, or the disk is full.
    """
    ran, records = manifest.load(folder), journal.read_records(folder)
    summary = summarise(ran, records, load() if prices is None else prices)
    encoded = msgspec.json.format(msgspec.json.encode(summary), indent=1).decode()
    files = {
        "summary.json": encoded + "\n",
        "report.md": markdown(summary),
        "report.html": page(summary),
        "figures.csv": figures_csv(records),
        "requests.csv": requests_csv(records),
        claims.OWN: claims.dump([claim for finding in findings(summary) for claim in finding.claims]),
    }
    for name, text in files.items():
        _replace(folder / name, text)
    return summary


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    fresh = path.with_name(path.name + ".new")
    with writing(path, path.parent):
        fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
