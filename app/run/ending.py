"""The end of a run: its summary, its report and its exit code."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

from app.config import Settings
from app.run.job import Job
from app.terminal.console import log_error, summary
from app.terminal.exit_codes import FAILED, WRONG
from app.terminal.stdio import StandardOutput
from app.terminal.terminal import Terminal
from app.terminal.wording import worded_in
from pipelines.errors import UsageError, reason
from pipelines.redact import printable, redact_in

log = logging.getLogger("watchline.run")

LISTED = 10
"""Videos that are named at the end."""


def finished(job: Job, settings: Settings, terminal: Terminal) -> int:
    """Print the summary, write the report, and return the exit code.

    :raises UsageError: if the run could not start, unless it was stopped before.
    """
    if isinstance(job.error, UsageError) and terminal.signals.received is None:
        raise job.error
    code = _code(job, settings)
    if job.monitor.ledgers or job.error is None:
        report = job.report()
        written = settings.report is not None and _write_report(report.as_dict(), settings.report, terminal.results)
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
    log_error(log, error, verbose=settings.verbose)
    return FAILED


def _write_report(report: dict[str, Any], path: str, results: StandardOutput) -> bool:
    """Write the report; False, with a message, if it cannot be written."""
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
    """JSON text; JSON's own escapes stand for characters that the encoding lacks."""
    for ascii_only in (False, True):
        text = json.dumps(redact_in(worded_in(report)), indent=1, ensure_ascii=ascii_only, allow_nan=False) + "\n"
        with contextlib.suppress(UnicodeEncodeError):
            text.encode(encoding)
            break
    return text


def _places(job: Job, settings: Settings, *, report: bool) -> list[str]:
    """A line for each output that this run wrote. An older file in its place is not a result."""
    videos = job.written(whole=True)
    lines = [f"annotated video: {video}" for video in videos[:LISTED]]
    lines += [f"... and {len(videos) - LISTED} more annotated videos"] if len(videos) > LISTED else []
    lines += [f"annotated video, incomplete: {video}" for video in job.written(whole=False)[:LISTED]]
    lines += [f"not written, as it was before: {video}" for video in job.untouched()[:LISTED]]
    lines += _json_lines(job, settings.jsonl)
    return lines + ([f"report: {settings.report}"] if settings.report != "-" and report else [])


def _json_lines(job: Job, place: str | None) -> list[str]:
    """The line about the JSON lines. After an error some results have none; a part of the last write may have arrived."""
    lines = job.lines_report()
    if place is None or lines is None:
        return []
    if lines.missed:
        shown, there = "standard output" if place == "-" else place, job.lines_written()
        return [f"JSON lines, incomplete: {shown} (at least {there} of {lines.taken + lines.missed})"]
    return [f"JSON lines: {place}"] if place != "-" and job.lines_written() else []
