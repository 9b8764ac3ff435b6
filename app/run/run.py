"""`watchline run`: the plan, the window and the main thread.

The main thread only waits: for signals, for the window, for the end. All work, from loading the model on, happens in the
thread `run` and in the threads that it starts. A call that nothing can interrupt (a name look-up, a driver) is left behind some
time after a stop; then outputs are finished and the process ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence

from app.build import cache_folder
from app.config import Settings
from app.run.ending import finished
from app.run.job import Job
from app.streams import StreamPlan, check_sources, plan
from app.terminal.console import RunScreen
from app.terminal.exit_codes import FAILED, WRONG
from app.terminal.supervise import wait_for_end
from app.terminal.terminal import Terminal
from pipelines.errors import SinkError, UsageError
from pipelines.predict.models.store import ModelStore
from pipelines.sinks.display import Display, open_display
from pipelines.sinks.exit_hook import before_exit
from pipelines.sinks.window import Window

log = logging.getLogger("watchline.run")

REFRESH_S = 0.25
"""Between two draws of the terminal's table."""
WINDOW_S = 0.02
"""The longest time in the window before the main thread looks at the run again."""
RUN_STOP_S = 2.5
"""Time for a stop before hanging threads are left behind: the process ends within 3 s."""
FINISH_S = 0.3
"""Time for finishing the outputs when threads are left behind."""


def run(settings: Settings, terminal: Terminal) -> int:
    """Run the settings to their end; the exit code.

    :raises UsageError: if the run could not start.
    """
    streams = plan(settings)
    for flag, path in (("--jsonl -", settings.jsonl), ("--report -", settings.report)):
        if path == "-":
            terminal.results.require(flag)
    with _display(settings) or contextlib.nullcontext() as display:
        return _run(settings, terminal, streams, display)


def _display(settings: Settings) -> Display | None:
    """The display, if a window is wanted. By default it is if there is a display and no other output was asked for."""
    if settings.show:
        return open_display(os.environ)
    if settings.show is None and not (settings.output or settings.jsonl or settings.report):
        with contextlib.suppress(UsageError):
            return open_display(os.environ)
    return None


def _run(settings: Settings, terminal: Terminal, streams: Sequence[StreamPlan], display: Display | None) -> int:
    dead = check_sources(streams)
    for name, error in dead.items():
        log.error("%s: %s", name, error)
    if len(dead) == len(streams):
        return WRONG
    window = Window("Watchline", [s.name for s in streams], screen=display.size) if display else None
    job = Job(settings, streams, dead, window, terminal.results)
    with terminal.signals.stopping(job.stop):
        # JSON lines that go to the same terminal are the display.
        quiet = settings.quiet or (settings.jsonl == "-" and terminal.results.isatty())
        with RunScreen(terminal.console, job.monitor, quiet=quiet) as screen:
            Watching(job, window, screen, settings, terminal).to_the_end()
        return finished(job, settings, terminal)


class Watching:
    """The main thread while a job runs: it draws the window and the terminal's table."""

    def __init__(self, job: Job, window: Window | None, screen: RunScreen, settings: Settings, terminal: Terminal) -> None:
        self._job = job
        self._window = window
        self._screen = screen
        self._settings = settings
        self._terminal = terminal
        self._refreshed_s = 0.0

    def to_the_end(self) -> None:
        """Start the job, and return when it has ended."""
        self._job.thread.start()
        with before_exit(self._display_lost) if self._window is not None else contextlib.nullcontext():
            self._wait()
        if self._window is not None:
            self._window.close()

    def _wait(self) -> None:
        job, signals = self._job, self._terminal.signals
        try:
            wait_for_end(job, signals, RUN_STOP_S, look=self._look, last=self._last)
        except Exception as error:  # of the window or the table: the run still ends in order
            job.fail(error)
            wait_for_end(job, signals, RUN_STOP_S, last=self._last)

    def _look(self) -> None:
        """One round: window, terminal, or a wait."""
        job = self._job
        if self._window is not None and not self._draw(self._window):
            self._window = None
        if self._window is None:
            job.thread.join(REFRESH_S if job.stopped_s is None else WINDOW_S)
        if time.monotonic() - self._refreshed_s > REFRESH_S:
            self._screen.refresh()
            self._refreshed_s = time.monotonic()

    def _draw(self, window: Window) -> bool:
        """Let the window draw, and do as the person says; False: it is closed."""
        job = self._job
        if job.stopped_s is None:
            for ledger in job.monitor.ledgers:
                silent_s = ledger.silent_s() if ledger.live else None
                window.status(ledger.stream, "" if silent_s is None else f"no signal {silent_s:.0f} s")
            try:
                event = window.refresh(WINDOW_S)
            except Exception as error:
                error.add_note("in the window")
                job.fail(error)
                event = "quit"
            if event == "pause":
                job.toggle_pause()
            if event != "quit":
                return True
            job.stop()
        window.close()
        return False

    def _last(self) -> None:
        """Finish the outputs while threads hang."""
        self._screen.__exit__()
        self._job.finish_outputs(FINISH_S)
        ModelStore(cache_folder()).forget_unfinished()

    def _display_lost(self) -> None:
        """Qt ends the process, since its display is gone: finish everything first. Thread: main, within `exit`."""
        code = FAILED
        try:
            assert self._window is not None
            self._window.lost()
            self._job.fail(SinkError("the window's display is gone; the run has ended, its outputs are finished"))
            wait_for_end(self._job, self._terminal.signals, RUN_STOP_S, last=self._last)
            self._screen.__exit__()
            code = finished(self._job, self._settings, self._terminal)
        finally:
            os._exit(code)
