"""Memory and energy of an engine while it is measured: process ids in, bytes and joules out.

What cannot be read is left out, never guessed.
"""

from onechip.ladder.meters.meter import Meter, metered

__all__ = ["Meter", "metered"]
