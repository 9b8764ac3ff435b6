"""The comparison of a model's int8 form with fp32: labels, time and size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.calibrate.sampling import Split
from app.machine.machine import machine, version
from pipelines.choices import Fit
from pipelines.cores import cores
from pipelines.errors import Stopped
from pipelines.predict.engines.openvino import OpenVinoEngine, OpenVinoSlot
from pipelines.predict.models.record import Int8Record
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import Rows

SIZES = (1, 8, 16)
"""Sizes of the measured batches."""
MEASURE_S = 0.6
"""Time that is spent on measuring one size, both models in turn."""


def compared(exact: Path, int8: Path, batch: int | None, split: Split, fit: Fit, keep_on: Callable[[], bool]) -> Int8Record:
    """Compare both forms on the frames that did not calibrate.

    batch: the only size that the model takes, None: any; fit: the way in which the frames met the input.

    :raises Stopped: if `keep_on` said so.
    """
    sizes = SIZES if batch is None else (batch,)
    models = {"fp32": exact, "int8": int8}
    engines = {name: OpenVinoEngine(path, name, cores(), None, batch) for name, path in models.items()}
    slots = {name: engine.open(max(sizes), 1)[0] for name, engine in engines.items()}
    try:
        rows = {name: _rows(engine, slots[name], split.comparing, max(sizes), keep_on) for name, engine in engines.items()}
        times = {size: _times(engines, slots, size, keep_on) for size in sizes}
    finally:
        for engine in engines.values():
            engine.close()
    agreement = ClassificationTask.agreement(rows["fp32"], rows["int8"])
    return Int8Record(
        agreement,
        agreement.passed,
        ms_a_frame={name: {str(size): round(times[size][name], 3) for size in sizes} for name in engines},
        size_mb={name: round(_size_mb(path), 2) for name, path in models.items()},
        machine={**machine(), "nncf": version("nncf")},
        calibrated_on=len(split.calibrating),
        sources=split.sources,
        fit=fit,
    )


def _rows(
    engine: OpenVinoEngine, slot: OpenVinoSlot, frames: npt.NDArray[np.uint8], size: int, keep_on: Callable[[], bool]
) -> Rows:
    found = []
    for start in range(0, len(frames), size):
        _check(keep_on)
        part = frames[start : start + size]
        slot.input[: len(part)] = part
        engine.start(slot, len(part))
        found.append([output.copy() for output in engine.wait(slot, len(part))])
    return tuple(np.concatenate(output) for output in zip(*found, strict=True))


def _times(
    engines: Mapping[str, OpenVinoEngine], slots: Mapping[str, OpenVinoSlot], size: int, keep_on: Callable[[], bool]
) -> dict[str, float]:
    """Milliseconds a frame, the best of as many warm batches as time allows, in turn: others use the machine, too."""
    best: dict[str, float] = {}
    end_s = time.monotonic() + MEASURE_S
    rounds = 0
    while rounds < 3 or time.monotonic() < end_s:
        _check(keep_on)
        for name, engine in engines.items():
            began_s = time.perf_counter()
            engine.start(slots[name], size)
            engine.wait(slots[name], size)
            took_s = time.perf_counter() - began_s
            if rounds:  # the first use of a size costs more
                best[name] = min(best.get(name, took_s), took_s)
        rounds += 1
    return {name: 1e3 * s / size for name, s in best.items()}


def _check(keep_on: Callable[[], bool]) -> None:
    if not keep_on():
        raise Stopped


def _size_mb(model: Path) -> float:
    return sum(f.stat().st_size for f in (model, model.with_suffix(".bin")) if f.is_file()) / 1e6
