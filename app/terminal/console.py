"""The terminal of a run: log lines, a live display, and the summary at the end."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from app.terminal.wording import worded
from pipelines.errors import WatchlineError
from pipelines.monitor.ledger import Glance, StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import RunReport, SessionReport, StreamReport
from pipelines.redact import printable

MANY = 30
"""Most files with a bar of their own; of more files only those that have not ended have one."""


class _Handler(logging.Handler):
    """Prints log records above the live display, each on one line. Markup and colours in a message have no effect."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "bold red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else None
        text = printable(worded(" ".join(record.getMessage().splitlines())))
        self._console.print(Text(text, style=style or ""), soft_wrap=True)


def log_error(log: logging.Logger, error: BaseException, *, verbose: bool) -> None:
    """Log the error that ended a command: one line, and its traceback if `verbose`."""
    # The message of a WatchlineError is complete; other errors need the name of their thread, which is a note.
    notes = "" if isinstance(error, WatchlineError) else "; ".join(getattr(error, "__notes__", []))
    log.error("%s%s", str(error) or type(error).__name__, f" ({type(error).__name__} {notes})" if notes else "")
    if verbose:
        log.debug("%s", "".join(traceback.format_exception(error)))


def start_logging(console: Console, *, verbose: bool, quiet: bool) -> None:
    """Send the loggers of Watchline to the terminal. A second call replaces the console."""
    logger = logging.getLogger("watchline")
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
    logger.handlers[:] = [_Handler(console)]
    logger.propagate = False


class RunScreen:
    """The live display of a run: bars for files, a table for cameras. Nothing is shown unless the console is a terminal.

    Thread: the main thread.
    """

    def __init__(self, console: Console, monitor: LatencyMonitor, *, quiet: bool) -> None:
        self.console = console
        self._monitor = monitor
        self._on = console.is_terminal and not quiet
        # Standard output is for JSON lines: if rich redirected it, it would print them above the display.
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
        """Draw the present state of the run."""
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
        done = glance.done
        if ledger.stream not in self._tasks:
            if len(self._tasks) >= MANY and glance.ended:
                return
            self._tasks[ledger.stream] = self._progress.add_task(escape(printable(ledger.stream)), total=None, fps=0.0)
        # A header can announce too few frames: the bar stays within 100 %.
        total = done if glance.ended else max(ledger.expected, done) if ledger.expected else None
        self._progress.update(self._tasks[ledger.stream], completed=done, total=total, fps=glance.recent_fps)
        if len(self._tasks) > MANY and glance.ended:
            self._progress.remove_task(self._tasks.pop(ledger.stream))


def camera_table(cameras: Sequence[Glance]) -> Table:
    """One row for each camera: its state, rate, latency and losses. The age by the cameras' own clocks is a column if one of
    them can be compared with this machine's clock."""
    aged = any(c.camera_age_ms is not None for c in cameras)
    names = ["stream", "state", "fps", "p50 ms", "p99 ms", *["camera age ms"] * aged, "shown", "late", "dropped", "failed"]
    table = Table(*names, box=None)
    for c in cameras:
        state = "ended" if c.ended else "waiting" if not c.captured else "live"
        if c.silent_s is not None:
            state = f"[red]no signal {c.silent_s:.0f} s[/red]"
        times = ["-" if ms is None else f"{ms:.1f}" for ms in (c.p50_ms, c.p99_ms, *[c.camera_age_ms] * aged)]
        counts = (str(n) for n in (c.shown, c.late, c.dropped, c.failed))
        table.add_row(Text(printable(c.stream)), state, f"{c.recent_fps:.1f}", *times, *counts)
    return table


def summary(report: RunReport, places: Sequence[str]) -> list[str]:
    """The last lines of a run: frames, rate, engine, latency, losses with their causes, and the places of the outputs."""
    session, engine = report.session, report.engine
    streams = list(session.every_stream())
    lines = [_frames(session, streams)]
    if engine.name is not None:  # None if the run was stopped before an engine was chosen
        lines.append(f"model {engine.model}: {engine.name} {engine.precision} on {engine.device}")
    if session.goodput is not None and any(s.live and s.shown for s in streams):
        total = session.latency_ms["total"]
        lines.append(
            f"latency p50 {total.p50} ms, p99 {total.p99} ms, max {total.max} ms; "
            f"{100 * session.goodput:.2f} % within {report.budget_ms:g} ms"
        )
    lines += [line for s in streams if (line := _camera_age(s))]
    lines += [line for s in streams if (line := _losses(s))]
    return [*lines, *places]


def _frames(session: SessionReport, streams: Sequence[StreamReport]) -> str:
    began = sum(s.captured > 0 for s in streams)
    of = f"{began} of " if began < len(streams) else ""
    line = f"{session.shown} of {session.captured} frames shown from {of}{counted(len(streams), 'streams')}"
    return f"{line}, {session.throughput_fps:.1f} frames/s" if session.throughput_fps else line


def counted(number: int, things: str) -> str:
    """`1 outage`, `2 outages`."""
    return f"{number} {things.removesuffix('s') if number == 1 else things}"


def _camera_age(s: StreamReport) -> str:
    """The age by the camera's own clock; empty unless that clock can be compared with this machine's."""
    age, why = s.camera_age_ms, {"same host": "on this host", "trusted": "trusted"}.get(s.camera_clock or "")
    return f"  {s.name}: shown at an age of p50 {age.p50} ms, p99 {age.p99} ms by its own clock ({why})" if age else ""


def _losses(s: StreamReport) -> str:
    parts = [f"{n} dropped ({cause})" for cause, n in s.dropped.items() if n]
    parts += [f"{n} {name}" for name, n in (("failed", s.failed), ("late", s.late)) if n]
    parts += [counted(s.decode_errors, "decode errors")] if s.decode_errors else []
    parts += [counted(len(s.outages), "outages")] if s.outages else []
    parts += [counted(s.packets.lost, "packets") + " lost"] if s.packets and s.packets.lost else []
    return f"  {s.name}: {', '.join(parts)}" if parts else ""
