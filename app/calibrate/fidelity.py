"""How the int8 form of a model compares with fp32: the record that is kept beside it, and how people read it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.machine.machine import machine, version
from pipelines.cores import cores
from pipelines.errors import Stopped
from pipelines.predict.engines.openvino import OpenVinoEngine, OpenVinoSlot
from pipelines.predict.models.record import percent
from pipelines.tasks.classification import AGREEMENT, MEAN_COSINE, SURE_AGREEMENT, SURE_P
from pipelines.tasks.task import Rows, Task

SIZES = (1, 8, 16)
"""Sizes of the measured batches."""
MEASURE_S = 0.6
"""Time that is spent on measuring one size, both models in turn."""


def compared(
    exact: Path, int8: Path, batch: int | None, frames: npt.NDArray[np.uint8], task: Task, keep_on: Callable[[], bool]
) -> dict[str, Any]:
    """The record's figures. frames: (n, 3, H, W) uint8, none of which calibrated; batch: the only size that the model takes;
    task: judges how far both forms agree.

    :raises Stopped: if `keep_on` said so.
    """
    sizes = SIZES if batch is None else (batch,)
    models = {"fp32": exact, "int8": int8}
    engines = {name: OpenVinoEngine(path, name, cores(), None, batch) for name, path in models.items()}
    slots = {name: engine.open(max(sizes), 1)[0] for name, engine in engines.items()}
    try:
        rows = {name: _rows(engine, slots[name], frames, max(sizes), keep_on) for name, engine in engines.items()}
        times = {size: _times(engines, slots, size, keep_on) for size in sizes}
    finally:
        for engine in engines.values():
            engine.close()
    return {
        **task.agreement(rows["fp32"], rows["int8"]).as_dict(),
        "ms_a_frame": {name: {str(size): round(times[size][name], 3) for size in sizes} for name in engines},
        "size_mb": {name: round(_size_mb(path), 2) for name, path in models.items()},
        "machine": {**machine(), "nncf": version("nncf")},
    }


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


def table(record: Mapping[str, Any]) -> list[str]:
    """The record in lines for the terminal."""
    ms, mb = record["ms_a_frame"], record["size_mb"]
    times = "; ".join(f"batch {size}: {ms['int8'][size]:.2f}, fp32 {ms['fp32'][size]:.2f}" for size in ms["int8"])
    frames = f"{record['calibrated_on']} calibrated, {record['frames']} others compared, sources: {record['sources']}"
    agreed = f"{percent(record['agreement'])} %"
    if record["sure_frames"]:
        sure = f"{percent(record['sure_agreement'])} % of {record['sure_frames']} frames (at least {100 * SURE_AGREEMENT:g} %)"
        agreed += f"; where fp32 is sure (p > {SURE_P:g}) {sure}"
    else:
        agreed += f" (at least {100 * AGREEMENT:g} %: fp32 is sure of no frame, p > {SURE_P:g}, so all are judged)"
    cosine = f"{record['cosine']:.4f} in the mean, {record['least_cosine']:.4f} the least"
    return [
        f"frames            {frames}",
        f"same best label   {agreed}",
        f"cosine of logits  {cosine} (in the mean at least {MEAN_COSINE:g})",
        f"size              {mb['int8']:.1f} MB, fp32 {mb['fp32']:.1f} MB",
        f"ms a frame        {times}",
    ]
