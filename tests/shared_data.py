"""Where published question sets, Gemma 4's vocabulary and its template are, for people who have them."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("ONECHIP_SHARED", Path(__file__).parents[2] / "shared")) / "data"
"""No part of the repository: a test that needs it is skipped where it is not."""
