"""What a busy machine that tests adds to the reasons why a cell is invalid, and how to be rid of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onechip.ladder import client, validity
from onechip.ladder.records import CellRecord

NOISE = ("The client was the bottleneck", "sent late", "The engine stood still")


def reasons(record: CellRecord, *but: str) -> list[str]:
    """Why a cell is invalid, without noise, and without what contains one of `but`."""
    return [reason for reason in record.invalid if not any(words in reason for words in (*NOISE, *but))]


def overlook(patch: Callable[[Any, str, float], None]) -> None:
    """No cell is invalid for noise from here on; `patch` sets an attribute."""
    for module, limit in (
        (client, "LATE_SEND_NS"),
        (validity, "MOST_LAG_MS"),
        (validity, "MOST_CPU_SHARE"),
        (validity, "STANDS_S"),
    ):
        patch(module, limit, math.inf)
