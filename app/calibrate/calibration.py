"""`watchline calibrate`: frames of sources -> NNCF in a child process -> an int8 model, kept if it is enough like fp32.

`run --precision int8` does the same with its files where nothing has been kept.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from app import build
from app.calibrate.fidelity import compared
from app.calibrate.quantise import quantise
from app.calibrate.sampling import LEAST, Reading
from app.config import Settings
from app.streams import StreamPlan
from pipelines.cores import cpu_name
from pipelines.errors import Stopped, UsageError
from pipelines.predict.models import autoselect, catalog
from pipelines.predict.models.comparison import Conditions, convert
from pipelines.predict.models.record import Int8Record
from pipelines.predict.models.store import Calibrated, ModelStore
from pipelines.predict.preprocess import RgbPreprocess
from pipelines.tasks.classification import ClassificationTask

log = logging.getLogger("watchline.calibrate")


class GateMissed(Exception):
    """The int8 form is too unlike fp32; its record. `better`: an earlier form that passed, which stays."""

    def __init__(self, record: Int8Record, better: Calibrated | None = None) -> None:
        super().__init__()
        self.record = record
        self.better = better


class Calibration:
    """One calibration. `run` in any one thread; `stop` from any other."""

    def __init__(self, settings: Settings, stop: threading.Event, *, force: bool = False) -> None:
        self.store = ModelStore(build.cache_folder())
        self.errors: list[str] = []
        """One message for each source that gave no pictures, or not all of them."""
        self._settings = settings
        self._stop = stop
        self._force = force

    def found(self) -> Calibrated | None:
        """The int8 form kept for this model on this machine; None if there is none."""
        stored = self.store.find(catalog.find(self._settings.model).identity)
        return stored.calibrated(cpu_name()) if stored is not None else None

    def run(self, streams: Sequence[StreamPlan]) -> Calibrated:
        """Calibrate from these streams and keep the result in place of an earlier one.

        :raises GateMissed: if it is too unlike fp32; nothing is kept.
        :raises Stopped: if it was to end; nothing is kept.
        :raises UsageError: if it cannot be done.
        """
        if importlib.util.find_spec("nncf") is None:
            raise UsageError("--precision int8 needs NNCF to calibrate a model; run: pip install 'watchline[int8]'")
        name = catalog.find(self._settings.model)
        conditions = Conditions(ClassificationTask(), pictures=build.sample_pictures)
        stored = self.store.get(name.identity, lambda folder: convert(name, folder, conditions))
        self._check()
        facts = stored.facts()
        reading = Reading(self._settings, RgbPreprocess(facts.input, self._settings.fit), self._stop)
        split = reading.frames(streams)
        self.errors += reading.errors
        count = len(split.calibrating) + len(split.comparing)
        if count < LEAST:
            why = f" ({'; '.join(self.errors)})" if self.errors else ""
            raise UsageError(f"the sources gave {count} different frames{why}; calibrating needs {LEAST}: give other sources")
        log.info("calibrating on %d frames, %d others are for comparison", len(split.calibrating), len(split.comparing))

        def make(folder: Path) -> Int8Record:
            model = folder / "model.xml"
            quantise(stored.model, split.calibrating, facts.batch, model, self._keep_on)
            record = compared(stored.model, model, facts.batch, split, self._settings.fit, self._keep_on)
            if not record.passed:
                earlier = stored.calibrated(cpu_name())
                better = earlier if earlier is not None and earlier.record().passed else None
                if better is not None or not self._force:
                    raise GateMissed(record, better)
            return record

        return stored.calibrate(cpu_name(), make)

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
    files = [s for s in streams if s.spec.kind == "images" or (s.spec.kind == "file" and Path(s.spec.address).is_file())]
    if not files:
        raise autoselect.uncalibrated(settings.model)
    log.info("the model %s has not been calibrated on this machine: that comes first, from the files", settings.model)
    began_s = time.monotonic()
    try:
        kept = calibration.run(files)
    except GateMissed as refused:
        record = refused.record
        raise UsageError(
            f"--precision int8 is refused for the model {settings.model!r}: {record.figures()} (the gate: {record.gate()}); "
            f"use bf16 or fp32, or keep it all the same: {autoselect.calibrating(settings.model)} --force"
        ) from None
    for error in calibration.errors:
        log.warning("%s", error)
    log.info("calibrated in %.1f s: %s", time.monotonic() - began_s, kept.record().figures())
