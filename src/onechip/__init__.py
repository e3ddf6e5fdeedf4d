"""onechip: serve a small model on one chip, and know which engine to do it with."""

__version__ = "0.1.0"
