"""`watchline calibrate`: its main thread, its messages and its exit code. The work is in `app.calibrate.calibration`."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Sequence

from app.calibrate.calibration import Calibration, GateMissed
from app.config import Settings
from app.run.run import RUN_STOP_S
from app.streams import StreamPlan, check_sources, plan
from app.terminal.exit_codes import DONE, FAILED, WRONG
from app.terminal.supervise import wait_for_end
from app.terminal.terminal import Terminal
from pipelines.errors import Stopped
from pipelines.predict.models.record import Int8Record
from pipelines.predict.models.store import Calibrated

log = logging.getLogger("watchline.calibrate")


def calibrate(settings: Settings, terminal: Terminal, *, force: bool) -> int:
    """Run the command. Returns its exit code. The main thread only waits, so that it can handle signals.

    :raises UsageError: if the calibration cannot start.
    """
    streams = plan(settings)
    dead = check_sources(streams)
    for name, error in dead.items():
        log.error("%s: %s", name, error)
    if len(dead) == len(streams):
        return WRONG
    job = _Job(settings, [s for s in streams if s.name not in dead], force=force)
    calibration = job.calibration
    began_s = time.monotonic()
    with terminal.signals.stopping(job.stop):
        job.thread.start()
        # Loading and converting a model cannot be interrupted; its unfinished files are removed.
        wait_for_end(job, terminal.signals, RUN_STOP_S, last=calibration.store.forget_unfinished)
    if terminal.signals.received is not None:
        return 128 + terminal.signals.received
    for error in calibration.errors:
        log.error("%s", error)
    code = _said(job.outcome, settings, terminal, time.monotonic() - began_s)
    return code or (FAILED if dead or calibration.errors else DONE)


class _Job:
    """The calibration, in a thread of its own."""

    def __init__(self, settings: Settings, streams: Sequence[StreamPlan], *, force: bool) -> None:
        self.stopped_s: float | None = None
        self.outcome: Calibrated | BaseException = Stopped()
        self._streams = streams
        self._stop = threading.Event()
        self.calibration = Calibration(settings, self._stop, force=force)
        self.thread = threading.Thread(target=self._run, name="calibrate")

    def stop(self) -> None:
        self.stopped_s = self.stopped_s or time.monotonic()
        self._stop.set()

    def hanging(self) -> list[str]:
        return [self.thread.name]

    def _run(self) -> None:
        try:
            self.outcome = self.calibration.run(self._streams)
        except BaseException as error:
            self.outcome = error


def _said(outcome: Calibrated | BaseException, settings: Settings, terminal: Terminal, took_s: float) -> int:
    if isinstance(outcome, Calibrated):
        record = outcome.record()
        _put(record, settings, terminal)
        terminal.results.put(f"kept after {took_s:.1f} s, for --precision int8, in {outcome.folder}{record.forced()}")
        return DONE
    if isinstance(outcome, GateMissed):
        _put(outcome.record, settings, terminal)
        how = "use bf16 or fp32, or --force"
        if outcome.better is not None:
            how = f"the earlier int8 form, which passed, stays; to be rid of it, remove {outcome.better.folder}"
        log.error("refused: %s (the gate: %s); %s", outcome.record.figures(), outcome.record.gate(), how)
        return FAILED
    if settings.verbose:
        log.debug("%s", "".join(traceback.format_exception(outcome)))
    raise outcome


def _put(record: Int8Record, settings: Settings, terminal: Terminal) -> None:
    terminal.results.put(f"int8 form of {settings.model}, compared with fp32")
    for line in record.table():
        terminal.results.put(line)
