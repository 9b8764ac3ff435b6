"""`watchline calibrate`: frames of sources -> NNCF in a child process -> an int8 model, kept if it is enough like fp32.

`run --precision int8` does the same with its files where nothing has been kept.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app import build, choose
from app.config import Settings
from app.cores import cores
from app.likeness import compared, figures, forced, gate, table
from app.plan import StreamPlan, plan
from app.quantise import quantise
from app.run import PATIENCE_S, check_sources
from app.spread import LEAST, Reading
from app.terminal import Terminal
from pipelines.errors import Stopped, UsageError
from pipelines.predict import models
from pipelines.predict.store import Calibrated, ModelStore

log = logging.getLogger("watchline.calibrate")

DONE, FAILED, WRONG = 0, 1, 2


class Refused(Exception):
    """The int8 form is too unlike fp32; its record. `better`: an earlier form that passed, which stays."""

    def __init__(self, record: dict[str, Any], better: Calibrated | None = None) -> None:
        super().__init__()
        self.record = record
        self.better = better


class Calibration:
    """One calibration. `run` in any one thread; `stop` from any other."""

    def __init__(self, settings: Settings, stop: threading.Event, *, force: bool = False) -> None:
        self.store = ModelStore(build.cache_folder())
        self.errors: list[str] = []
        """What became of sources that gave no pictures, or not all."""
        self._settings = settings
        self._stop = stop
        self._force = force

    def found(self) -> Calibrated | None:
        """What has been kept for this model on this machine."""
        stored = self.store.find(models.find(self._settings.model).identity)
        return stored.calibrated(choose.cpu_name()) if stored is not None else None

    def run(self, streams: Sequence[StreamPlan]) -> Calibrated:
        """Calibrate from these streams and keep the result in place of an earlier one.

        :raises Refused: if it is too unlike fp32; nothing is kept.
        :raises Stopped: if it was to end; nothing is kept.
        :raises UsageError: if it cannot be done.
        """
        if importlib.util.find_spec("nncf") is None:
            raise UsageError("--precision int8 needs NNCF to calibrate a model; run: pip install 'watchline[int8]'")
        name = models.find(self._settings.model)
        stored = self.store.get(name.identity, lambda folder: choose.convert(name, folder, cores()))
        self._check()
        facts = stored.facts()
        reading = Reading(self._settings, build.rgb(facts.input, self._settings)(), self._stop)
        split = reading.frames(streams)
        self.errors += reading.errors
        count = len(split.calibrating) + len(split.comparing)
        if count < LEAST:
            why = f" ({'; '.join(self.errors)})" if self.errors else ""
            raise UsageError(f"the sources gave {count} different frames{why}; calibrating needs {LEAST}: give other sources")
        log.info("calibrating on %d frames, %d others are for comparison", len(split.calibrating), len(split.comparing))

        def make(folder: Path) -> dict[str, Any]:
            model = folder / "model.xml"
            quantise(stored.model, split.calibrating, facts.batch, model, self._keep_on)
            record = compared(stored.model, model, facts.batch, split.comparing, self._keep_on)
            record |= {"calibrated_on": len(split.calibrating), "sources": split.sources, "fit": self._settings.fit}
            if not record["passed"]:
                earlier = stored.calibrated(choose.cpu_name())
                better = earlier if earlier is not None and earlier.record()["passed"] else None
                if better is not None or not self._force:
                    raise Refused(record, better)
            return record

        return stored.calibrate(choose.cpu_name(), make)

    def _keep_on(self) -> bool:
        return not self._stop.is_set()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped


def ensure(settings: Settings, streams: Sequence[StreamPlan], stop: threading.Event) -> None:
    """Before a run with int8: calibrate from its files, where nothing has been kept for its model.

    :raises Stopped: if it was to end.
    :raises UsageError: if it cannot be done, or is refused.
    """
    calibration = Calibration(settings, stop)
    if calibration.found() is not None:
        return
    files = [s for s in streams if s.kind == "images" or (s.kind == "file" and Path(s.address).is_file())]
    if not files:
        raise choose.uncalibrated(settings.model)
    log.info("the model %s has not been calibrated on this machine: that comes first, from the files", settings.model)
    began_s = time.monotonic()
    try:
        kept = calibration.run(files)
    except Refused as refused:
        record = refused.record
        raise UsageError(
            f"--precision int8 is refused for the model {settings.model!r}: {figures(record)} (the gate: {gate(record)}); "
            f"use bf16 or fp32, or keep it all the same: {choose.calibrating(settings.model)} --force"
        ) from None
    for error in calibration.errors:
        log.warning("%s", error)
    log.info("calibrated in %.1f s: %s", time.monotonic() - began_s, figures(kept.record()))


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
    if isinstance(outcome, Refused):
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
