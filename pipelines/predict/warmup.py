"""Warm-up: the first batches of an engine, and the measurement of l(b)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.frame import WHOLE_FRAME, Picture
from pipelines.predict.engines.engine import Engine, checked, warm_sizes
from pipelines.predict.measurement import measure
from pipelines.predict.scheduling.profile import Profile, Timing, measured_sizes
from pipelines.tasks.task import Rows

GREY = Picture(np.full((64, 64), 128, np.uint8), np.full((32, 32), 128, np.uint8), np.full((32, 32), 128, np.uint8))
LIMIT_S = 4.0
"""Sizes that warming and measuring have not reached by then are extrapolated."""


def stage(engine: Engine, slot: Any) -> None:
    """Stage a grey picture: the first call of a library's function costs up to half a second, which no frame should pay."""
    engine.stage(slot, 0, GREY, WHOLE_FRAME[0])


def example(engine: Engine, slot: Any) -> Rows:
    """The rows of the staged picture, without the batch dimension; they stay valid."""
    engine.start(slot, 1)
    rows = checked(engine.wait(slot, 1), 1, engine.outputs)
    return tuple(np.array(output[0]) for output in rows)


def measured(
    engine: Engine,
    slots: Sequence[Any],
    max_batch: int,
    *,
    known: Mapping[int, Timing] | None,
    bulk: bool,
    keep_on: Callable[[], bool],
) -> Profile:
    """l(b) with one batch per slot side by side, after every size that will occur was warmed.

    known: figures of an earlier start. bulk: only the best size will occur; if `known` is complete, only that size is warmed.
    """
    pads = engine.sizes is not None

    def run(b: int) -> float:
        return _time(engine, slots, b)

    if bulk and known and set(measured_sizes(max_batch)) <= set(known):
        profile = Profile(known, max_batch, pads=pads)
        run(profile.best_batch)
        return profile
    warm = [] if bulk else warm_sizes(engine, max_batch)
    return measure(run, warm, max_batch, pads=pads, limit_s=LIMIT_S, keep_on=keep_on, known=known)


def _time(engine: Engine, slots: Sequence[Any], b: int) -> float:
    began = time.perf_counter()
    for slot in slots:
        engine.start(slot, b)
    for slot in slots:
        engine.wait(slot, b)
    return time.perf_counter() - began
