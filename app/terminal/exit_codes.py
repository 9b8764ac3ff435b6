"""Exit codes, as in --help and the documentation. `signals.py` has the exit code after a signal."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""A source or an output failed; the others were finished."""
WRONG = 2
"""The command line was wrong, or the command could not start."""
