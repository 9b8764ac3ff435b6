"""What a person at the terminal sees: log lines, a live picture of the run, and the summary at its end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pipelines.monitor import Glance, LatencyMonitor, StreamLedger
from pipelines.redact import printable

MANY = 30
"""Files that are shown with a bar of their own; of more, those that have not ended."""


class _Handler(logging.Handler):
    """Log lines above the live display, each on one line, without markup or colours of their own."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "bold red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else None
        text = printable(" ".join(record.getMessage().splitlines()))
        self._console.print(Text(text, style=style or ""), soft_wrap=True)


def start_logging(console: Console, *, verbose: bool, quiet: bool) -> None:
    """Send the loggers of Watchline to the terminal. Calling it again replaces the console."""
    logger = logging.getLogger("watchline")
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
    logger.handlers[:] = [_Handler(console)]
    logger.propagate = False


class RunScreen:
    """The live display of a run: bars for files, a table for cameras. Nothing is shown where there is no terminal.

    Thread: the main thread.
    """

    def __init__(self, console: Console, monitor: LatencyMonitor, *, quiet: bool) -> None:
        self.console = console
        self._monitor = monitor
        self._on = console.is_terminal and not quiet
        # Standard output is for JSON lines: rich would print them here, above the display.
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[fps]:.0f} fps"),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> RunScreen:
        if self._on:
            self._live.start()
        return self

    def refresh(self) -> None:
        """Draw the run as it is now."""
        if self._on:
            self._live.update(self._drawn(), refresh=True)

    def __exit__(self, *error: object) -> None:
        if self._on:
            self._live.stop()

    def _drawn(self) -> RenderableType:
        ledgers = self._monitor.ledgers
        for ledger in ledgers:
            if not ledger.live:
                self._update_bar(ledger)
        cameras = [ledger.glance() for ledger in ledgers if ledger.live]
        parts: list[RenderableType] = [camera_table(cameras)] if cameras else []
        return Group(*parts, self._progress) if self._tasks else Group(*parts)

    def _update_bar(self, ledger: StreamLedger) -> None:
        glance = ledger.glance()
        done = glance.captured - ledger.in_flight
        if ledger.stream not in self._tasks:
            if len(self._tasks) >= MANY and glance.ended:
                return
            self._tasks[ledger.stream] = self._progress.add_task(escape(printable(ledger.stream)), total=None, fps=0.0)
        # A header that announces too few frames must not give 110 %.
        total = done if glance.ended else max(ledger.expected, done) if ledger.expected else None
        self._progress.update(self._tasks[ledger.stream], completed=done, total=total, fps=glance.fps)
        if len(self._tasks) > MANY and glance.ended:
            self._progress.remove_task(self._tasks.pop(ledger.stream))


def camera_table(cameras: Sequence[Glance]) -> Table:
    """One row a camera: is it there, how fast, how late, what was lost; its age by the cameras' own clocks, where one of
    them can be compared with this machine's."""
    aged = any(c.camera_age_ms is not None for c in cameras)
    names = ["stream", "state", "fps", "p50 ms", "p99 ms", *["camera age ms"] * aged, "shown", "late", "dropped", "failed"]
    table = Table(*names, box=None)
    for c in cameras:
        state = "ended" if c.ended else "waiting" if not c.captured else "live"
        if c.silent_s is not None:
            state = f"[red]no signal {c.silent_s:.0f} s[/red]"
        times = ["-" if ms is None else f"{ms:.1f}" for ms in (c.p50_ms, c.p99_ms, *[c.camera_age_ms] * aged)]
        counts = (str(n) for n in (c.shown, c.late, c.dropped, c.failed))
        table.add_row(Text(printable(c.stream)), state, f"{c.fps:.1f}", *times, *counts)
    return table


def summary(report: dict[str, Any], places: Sequence[str]) -> list[str]:
    """The lines that end a run: what was done, how fast, how late, what was lost and why, where to look."""
    streams = report["streams"]
    shown, captured = (sum(s[key] for s in streams.values()) for key in ("shown", "captured"))
    began = sum(s["captured"] > 0 for s in streams.values())
    of = f"{began} of " if began < len(streams) else ""
    lines = [f"{shown} of {captured} frames shown from {of}{counted(len(streams), 'streams')}"]
    if report["throughput_fps"]:
        lines[0] += f", {report['throughput_fps']:.1f} frames/s"
    engine = report["engine"]
    if engine["name"] is not None:  # else it was stopped before one was chosen
        lines.append(f"model {engine['model']}: {engine['name']} {engine['precision']} on {engine['device']}")
    if any(s["live"] and s["shown"] for s in streams.values()):
        total = report["latency_ms"]["total"]
        lines.append(
            f"latency p50 {total['p50']} ms, p99 {total['p99']} ms, max {total['max']} ms; "
            f"{100 * report['goodput']:.2f} % within {report['budget_ms']:g} ms"
        )
    lines += [line for name, s in streams.items() if (line := _camera_age(name, s))]
    lines += [line for name, s in streams.items() if (line := _losses(name, s))]
    return [*lines, *places]


def counted(number: int, things: str) -> str:
    """`1 outage`, `2 outages`."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _camera_age(name: str, s: dict[str, Any]) -> str:
    """The age by the camera's own clock, where that means something."""
    age, why = s["camera_age_ms"], {"same host": "on this host", "trusted": "trusted"}.get(s["camera_clock"])
    return f"  {name}: shown at an age of p50 {age['p50']} ms, p99 {age['p99']} ms by its own clock ({why})" if age else ""


def _losses(name: str, s: dict[str, Any]) -> str:
    parts = [f"{n} dropped ({cause})" for cause, n in s["dropped"].items() if n]
    parts += [f"{s[key]} {key}" for key in ("failed", "late") if s[key]]
    parts += [counted(s["decode_errors"], "decode errors")] if s["decode_errors"] else []
    parts += [counted(len(s["outages"]), "outages")] if s["outages"] else []
    parts += [counted(s["packets"]["lost"], "packets") + " lost"] if s["packets"] and s["packets"]["lost"] else []
    return f"  {name}: {', '.join(parts)}" if parts else ""
