"""The two names of models that other parts must know. Imports nothing, so that `--help` stays quick."""

from __future__ import annotations

DEFAULT = "lite0"
"""EfficientNet-Lite0, which is installed with the program."""
PROBE = "probe"
"""The diagnostic engine, see `engines/probe.py`."""
