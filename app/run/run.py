"""Running it: who starts what, who waits, who closes, and what the exit code is.

The main thread only waits: for signals, for the window, for the end. All work, from loading the model on, happens in the
thread `run` and in those that it starts. A stop goes to every lane and to the predictor; what cannot be interrupted (a
name look-up, a driver) is left behind after a while, with the outputs finished.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.build import cache_folder
from app.config import Settings
from app.run.job import Job
from app.streams import StreamPlan, plan
from app.terminal.console import RunScreen, summary
from app.terminal.exit_codes import FAILED, WRONG
from app.terminal.signals import Signals
from app.terminal.stdio import Results
from app.terminal.terminal import Terminal
from pipelines.errors import SinkError, SourceError, UsageError, WatchlineError, reason
from pipelines.predict.models.store import ModelStore
from pipelines.redact import printable, redact_in
from pipelines.sinks.display import Display, open_display
from pipelines.sinks.exit_hook import before_exit
from pipelines.sinks.window import Window
from pipelines.sources.files.file import check_file
from pipelines.sources.files.images import read_picture
from pipelines.sources.webcam import check_device

log = logging.getLogger("watchline.run")

REFRESH_S = 0.25
PATIENCE_S = 2.5
"""After a stop; then what still runs is left behind, so that the process has ended within 3 s."""
FINISH_S = 0.3
"""For the outputs, when something is left behind."""
LISTED = 10
"""Videos that are named at the end."""
SWITCH_S = 0.001
"""Python's default lets a thread keep the interpreter for 5 ms while another waits: a tenth of the latency budget."""


def run(settings: Settings, terminal: Terminal) -> int:
    """Run the settings to their end; the exit code.

    :raises UsageError: if it could not start.
    """
    streams = plan(settings)
    for flag, path in (("--jsonl -", settings.jsonl), ("--report -", settings.report)):
        if path == "-":
            terminal.results.require(flag)
    with _display(settings) or contextlib.nullcontext() as display:
        return _run(settings, terminal, streams, display)


def _run(settings: Settings, terminal: Terminal, streams: Sequence[StreamPlan], display: Display | None) -> int:
    dead = check_sources(streams, settings)
    for name, error in dead.items():
        log.error("%s: %s", name, error)
    if len(dead) == len(streams):
        return WRONG
    sys.setswitchinterval(SWITCH_S)
    window = Window("Watchline", [s.name for s in streams], screen=display.size) if display else None
    job = Job(settings, streams, dead, window, terminal.results)
    with terminal.signals.stopping(job.stop):
        # Lines that go to the same terminal are the display.
        quiet = settings.quiet or (settings.jsonl == "-" and terminal.results.isatty())
        with RunScreen(terminal.console, job.monitor, quiet=quiet) as screen:
            if window is None:
                _wait(job, None, screen, terminal.signals)
            else:
                with before_exit(lambda: _rescue(job, window, settings, screen, terminal)):
                    _wait(job, window, screen, terminal.signals)
        return _finished(job, settings, terminal)


def _display(settings: Settings) -> Display | None:
    """The display if there is to be a window. By default there is, if there is a display and nothing else was asked."""
    if settings.show:
        return open_display(os.environ)
    if settings.show is None and not (settings.output or settings.jsonl or settings.report):
        with contextlib.suppress(UsageError):
            return open_display(os.environ)
    return None


def check_sources(streams: Sequence[StreamPlan], settings: Settings) -> dict[str, str]:
    """Streams that cannot be opened, as far as that can be known before anything is loaded, and why.

    Of what was found in folders only as much is tried as it takes to find one that is good: there may be thousands.
    """
    dead: dict[str, str] = {}
    found_good = False
    for stream in streams:
        if stream.found and found_good:
            continue
        try:
            _check(stream)
            found_good = True
        except SourceError as error:
            dead[stream.name] = str(error)
    return dead


def _check(stream: StreamPlan) -> None:
    if stream.spec.kind == "file":
        check_file(Path(stream.spec.address))
    elif stream.spec.kind == "device":
        check_device(Path(stream.spec.address))
    elif stream.spec.kind == "images" and len(stream.spec.pictures) == 1:
        read_picture(stream.spec.pictures[0], threading.Event())


def _join(job: Job, screen: RunScreen, signals: Signals) -> None:
    """Until the job has ended after a stop, or hangs."""
    assert job.stopped_s is not None
    job.thread.join(max(job.stopped_s + PATIENCE_S - time.monotonic(), 0))
    if job.thread.is_alive():
        screen.__exit__()
        _abandon(job, signals)


def _wait(job: Job, window: Window | None, screen: RunScreen, signals: Signals) -> None:
    """Until the job has ended, or hangs after a stop. Draws the window and the screen meanwhile."""
    job.thread.start()
    drawn_s = 0.0
    while job.thread.is_alive():
        if window is not None and not _look(job, window):
            window = None
        if window is None:
            job.thread.join(REFRESH_S if job.stopped_s is None else 0.02)
        if time.monotonic() - drawn_s > REFRESH_S:
            screen.refresh()
            drawn_s = time.monotonic()
        if job.stopped_s is not None and time.monotonic() - job.stopped_s > PATIENCE_S:
            screen.__exit__()
            _abandon(job, signals)
    if window is not None:
        window.close()


def _look(job: Job, window: Window) -> bool:
    """Let the window draw and see what the person did; False: it is closed."""
    if job.stopped_s is None:
        for ledger in job.monitor.ledgers:
            silent_s = ledger.glance().silent_s if ledger.live else None
            window.status(ledger.stream, "" if silent_s is None else f"no signal {silent_s:.0f} s")
        try:
            event = window.refresh(0.02)
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


def _rescue(job: Job, window: Window, settings: Settings, screen: RunScreen, terminal: Terminal) -> None:
    """Qt ends the process, since its display is gone: finish everything first. Thread: the main thread, within `exit`."""
    code = FAILED
    try:
        window.lost()
        job.fail(SinkError("the window's display is gone; the run has ended, its outputs are finished"))
        _join(job, screen, terminal.signals)
        screen.__exit__()
        code = _finished(job, settings, terminal)
    finally:
        os._exit(code)


def _abandon(job: Job, signals: Signals) -> None:
    """Something does not end: finish the outputs, say what hangs, and go."""
    log.error("still running after %.1f s: %s", PATIENCE_S, ", ".join(job.hanging()))
    job.finish_outputs(FINISH_S)
    ModelStore(cache_folder()).forget_unfinished()
    os._exit(signals.code(FAILED))


def _finished(job: Job, settings: Settings, terminal: Terminal) -> int:
    """Say how it ended, write the report; the exit code.

    :raises UsageError: if it could not start. Of a run that was stopped before it had begun nobody asks that.
    """
    if isinstance(job.error, UsageError) and terminal.signals.received is None:
        raise job.error
    code = _code(job, settings)
    if job.monitor.ledgers or job.error is None:
        report = job.report()
        written = settings.report is not None and _write_report(report, settings.report, terminal.results)
        if settings.report is not None and not written:
            code = FAILED
        if not settings.quiet:
            for line in summary(report, _places(job, settings, report=written)):
                terminal.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    return terminal.signals.code(code)


def _code(job: Job, settings: Settings) -> int:
    error = job.error
    if error is None:
        return job.exit_code()
    if isinstance(error, UsageError):
        return WRONG
    # Of what is no fault of the program the message says all.
    notes = "" if isinstance(error, WatchlineError) else "; ".join(getattr(error, "__notes__", []))
    log.error("%s%s", str(error) or type(error).__name__, f" ({type(error).__name__} {notes})" if notes else "")
    if settings.verbose:
        log.debug("%s", "".join(traceback.format_exception(error)))
    return FAILED


def _write_report(report: dict[str, Any], path: str, results: Results) -> bool:
    """Write it, or say why not."""
    text = _as_text(report, results.encoding if path == "-" else "utf-8")
    try:
        if path == "-":
            results.write(text)
            results.flush()
        else:
            Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        log.error("cannot write the report to %s: %s", "standard output" if path == "-" else repr(path), reason(error))
        return False
    return True


def _as_text(report: dict[str, Any], encoding: str) -> str:
    """JSON, with its own escapes where the encoding cannot hold a name."""
    for ascii_only in (False, True):
        text = json.dumps(redact_in(report), indent=1, ensure_ascii=ascii_only, allow_nan=False) + "\n"
        with contextlib.suppress(UnicodeEncodeError):
            text.encode(encoding)
            break
    return text


def _places(job: Job, settings: Settings, *, report: bool) -> list[str]:
    """What this run wrote, and where. A file that was there before is not its result."""
    videos = job.written(whole=True)
    lines = [f"annotated video: {video}" for video in videos[:LISTED]]
    lines += [f"... and {len(videos) - LISTED} more annotated videos"] if len(videos) > LISTED else []
    lines += [f"annotated video, incomplete: {video}" for video in job.written(whole=False)[:LISTED]]
    lines += [f"not written, as it was before: {video}" for video in job.untouched()[:LISTED]]
    what = "JSON lines" if job.lines_whole() else "JSON lines, incomplete"
    lines += [f"{what}: {settings.jsonl}"] if settings.jsonl != "-" and job.wrote_lines() else []
    return lines + ([f"report: {settings.report}"] if settings.report != "-" and report else [])
