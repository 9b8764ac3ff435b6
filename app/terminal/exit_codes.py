"""Exit codes, as --help and the README name them. That of a signal is in `signals.py`."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""A source or an output failed; the others were finished."""
WRONG = 2
"""The command was wrong, or could not start."""
