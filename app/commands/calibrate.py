"""`watchline calibrate`: its main thread, its messages and its exit code. The work is in `app.calibrate.calibration`."""

from __future__ import annotations

import logging
import os
import threading
import time
import traceback
from typing import Any

from app.calibrate.calibration import Calibration, GateMissed
from app.calibrate.fidelity import figures, forced, gate, table
from app.config import Settings
from app.run.run import PATIENCE_S, check_sources
from app.streams import plan
from app.terminal.exit_codes import DONE, FAILED, WRONG
from app.terminal.terminal import Terminal
from pipelines.predict.models.store import Calibrated, ModelStore

log = logging.getLogger("watchline.calibrate")


def calibrate(settings: Settings, terminal: Terminal, *, force: bool) -> int:
    """The command; its exit code. The main thread only waits, so that a signal is answered.

    :raises UsageError: if it could not start.
    """
    streams = plan(settings)
    dead = check_sources(streams, settings)
    for name, error in dead.items():
        log.error("%s: %s", name, error)
    if len(dead) == len(streams):
        return WRONG
    stop = threading.Event()
    calibration = Calibration(settings, stop, force=force)
    outcome: list[Calibrated | BaseException] = []

    def work() -> None:
        try:
            outcome.append(calibration.run([s for s in streams if s.name not in dead]))
        except BaseException as error:
            outcome.append(error)

    began_s = time.monotonic()
    thread = threading.Thread(target=work, name="calibrate")
    with terminal.signals.stopping(stop.set):
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if stop.is_set():
                _await_end(thread, terminal, calibration.store)
    if terminal.signals.received is not None:
        return 128 + terminal.signals.received
    for error in calibration.errors:
        log.error("%s", error)
    code = _said(outcome[0], settings, terminal, time.monotonic() - began_s)
    return code or (FAILED if dead or calibration.errors else DONE)


def _await_end(thread: threading.Thread, terminal: Terminal, store: ModelStore) -> None:
    """Loading and converting a model cannot be interrupted: after a while it is left behind, and what it wrote is removed."""
    thread.join(PATIENCE_S)
    if thread.is_alive():
        log.error("still running after %.1f s: %s", PATIENCE_S, thread.name)
        store.forget_unfinished()
        os._exit(128 + (terminal.signals.received or 0))


def _said(outcome: Calibrated | BaseException, settings: Settings, terminal: Terminal, took_s: float) -> int:
    if isinstance(outcome, Calibrated):
        record = outcome.record()
        _put(record, settings, terminal)
        terminal.results.put(f"kept after {took_s:.1f} s, for --precision int8, in {outcome.folder}{forced(record)}")
        return DONE
    if isinstance(outcome, GateMissed):
        _put(outcome.record, settings, terminal)
        how = "use bf16 or fp32, or --force"
        if outcome.better is not None:
            how = f"the earlier int8 form, which passed, stays; to be rid of it, remove {outcome.better.folder}"
        log.error("refused: %s (the gate: %s); %s", figures(outcome.record), gate(outcome.record), how)
        return FAILED
    if settings.verbose:
        log.debug("%s", "".join(traceback.format_exception(outcome)))
    raise outcome


def _put(record: dict[str, Any], settings: Settings, terminal: Terminal) -> None:
    terminal.results.put(f"int8 form of {settings.model}, compared with fp32")
    for line in table(record):
        terminal.results.put(line)
