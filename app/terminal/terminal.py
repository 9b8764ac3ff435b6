"""Terminal: the streams and signals of a command."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from app.terminal.signals import Signals
from app.terminal.stdio import StandardOutput


@dataclass(frozen=True, slots=True)
class Terminal:
    """console: standard error. results: standard output."""

    console: Console
    results: StandardOutput
    signals: Signals
