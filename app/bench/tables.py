"""Tables of figures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 130


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns under their names; None is a dash."""
    made = Table(*names, box=None)
    for row in rows:
        made.add_row(*("-" if cell is None else str(cell) for cell in row))
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(made)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n"))


def machine_lines(machine: dict[str, Any]) -> list[str]:
    """The machine of the measurement (see `app.machine.machine`)."""
    return [
        f"{machine['cpu']}, {machine['cores']} cores, GPU {machine['gpu'] or 'none'}, Python {machine['python']}",
        ", ".join(f"{name} {v}" for name, v in machine["versions"].items()),
    ]
