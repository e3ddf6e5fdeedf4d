"""figures.csv and requests.csv: cell records in, two tidy tables out, for computing further."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from statistics import median

from onechip.ladder import figures, timing
from onechip.ladder.figures import KINDS
from onechip.ladder.records import Cell, CellRecord, RequestRecord

Row = tuple[object, ...]
CELL = ("arm", "job", "variant", "level", "repeat", "block")
FIGURES = (*CELL, "started_at", "figure", "unit", "value", "invalid")
REQUESTS = (
    *CELL,
    *("invalid", "index", "question", "asked_prompt_tokens", "prompt_tokens", "cached_tokens"),
    *("asked_output_tokens", "output_tokens", "ttft_ms", "to_last_token_ms", "end_to_end_tok_s"),
    *("decode_tok_s", "inter_token_p50_ms", "inter_token_max_ms", "finish", "correct", "error"),
)


def figures_csv(records: Iterable[CellRecord]) -> str:
    """A row for each figure of each cell, in the units in which they are kept.

    An invalid cell has one row, with its reasons and without a figure, so that no sum can hold it by mistake.
    """
    return _text(FIGURES, (row for record in records for row in _figures(record)))


def _figures(record: CellRecord) -> Iterator[Row]:
    head = (*_cell(record.cell), record.started_at)
    if record.invalid:
        yield (*head, None, None, None, " ".join(record.invalid))
        return
    for name, value in figures.of_cell(record).items():
        yield (*head, name, KINDS[name].unit, value, None)


def requests_csv(records: Iterable[CellRecord]) -> str:
    """A row for each request of each cell, those of invalid cells too, which say so in `invalid`."""
    return _text(REQUESTS, (_request(record, r) for record in records for r in record.requests))


def _request(record: CellRecord, r: RequestRecord) -> Row:
    gaps = timing.inter_token_ms(r)
    last = (r.event_ns[-1] - r.sent_ns) / timing.NS_PER_MS if r.event_ns else None
    return (
        *_cell(record.cell),
        bool(record.invalid),
        *(r.index, r.extra.get("question"), r.asked_prompt_tokens, r.prompt_tokens, r.cached_tokens),
        *(r.asked_output_tokens, r.output_tokens, timing.ttft_ms(r), last, timing.end_to_end_tok_s(r)),
        *(timing.decode_tok_s(r), median(gaps) if gaps else None, max(gaps, default=None)),
        *(r.finish, r.extra.get("correct"), r.error),
    )


def _cell(cell: Cell) -> Row:
    return cell.arm, cell.job, cell.variant, cell.level, cell.repeat + 1, cell.block


def _text(head: Row, rows: Iterable[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_field(value) for value in row] for row in rows)
    return buffer.getvalue()


def _field(value: object) -> object:
    """Nothing for what is not known; six digits that count of a measurement."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and value < 1e6 else value
