"""The parts of the pipeline, each measured alone, to compare with a run."""

from __future__ import annotations

import math
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.frame import WHOLE_FRAME, Capture, Frame, Prediction, Trace
from pipelines.predict.engines.engine import Engine
from pipelines.predict.preprocess import Preprocess
from pipelines.predict.scheduling.profile import Profile, Timing, measured_sizes
from pipelines.render.overlay import Overlay
from pipelines.sinks.video import VideoFile
from pipelines.sources.source import Source
from pipelines.watch import NullWatch

SAMPLE = 64
"""Frames on which a part is measured."""
MODEL_S = 0.3
"""Seconds in which a batch size is measured, or SAMPLE batches."""
REPEATS = 3
"""Times that a part is measured; the median counts."""


def timed(work: Callable[[], Any], frames: int, repeats: int = REPEATS) -> tuple[Any, float]:
    """The result of `work`, and its CPU milliseconds a frame, warm. CPU time of all threads, so that other programs disturb it
    little."""
    result = work()
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        result = work()
        spent.append(time.process_time() - began)
    return result, 1e3 * statistics.median(spent) / max(frames, 1)


def decode(source: Callable[[], Source], frames: int = SAMPLE, repeats: int = REPEATS) -> tuple[list[Capture], float]:
    """The first `frames` captures of a source, and the CPU milliseconds of one."""

    def take() -> list[Capture]:
        captures = source().frames(threading.Event(), NullWatch())
        taken = list(islice(captures, frames))
        captures.close()
        return taken

    if repeats == 0:  # a camera cannot be played twice
        began = time.process_time()
        captures = take()
        return captures, 1e3 * (time.process_time() - began) / max(len(captures), 1)
    captures, _ = taken = timed(take, frames, repeats)
    return captures, taken[1] * frames / max(len(captures), 1)


def preprocess(into: Preprocess, captures: list[Capture]) -> float:
    """CPU milliseconds of making one model input."""
    row = np.zeros(into.shape, np.uint8)

    def work() -> None:
        for capture in captures:
            into(capture.picture, WHOLE_FRAME[0], row)

    return timed(work, len(captures))[1]


@dataclass(frozen=True, slots=True)
class BatchCost:
    """One batch, warm: seconds on the wall's clock, and CPU milliseconds of each of its frames."""

    seconds: float
    cpu_ms: float


def model(engine: Engine, max_batch: int, longest_s: float = math.inf) -> dict[int, BatchCost]:
    """The cost of batches of 1, 2, 4, ... on an idle engine, up to the first that takes longer than `longest_s`.
    Opens and closes the engine."""
    (slot,) = engine.open(max_batch, 1)
    costs: dict[int, BatchCost] = {}
    for b in sizes(engine, max_batch):
        costs[b] = _batch(engine, slot, b)
        if costs[b].seconds > longest_s:
            break
    engine.close()
    return costs


def sizes(engine: Engine, max_batch: int) -> list[int]:
    """1, 2, 4, ... as far as the engine takes them."""
    if engine.sizes is not None and len(engine.sizes) == 1:
        return [1]
    return measured_sizes(max_batch)


def _batch(engine: Engine, slot: Any, b: int) -> BatchCost:
    def run() -> float:
        began = time.perf_counter()
        engine.start(slot, b)
        engine.wait(slot, b)
        return time.perf_counter() - began

    for _ in range(3):
        run()
    began, seconds = time.process_time(), [run(), run()]
    while len(seconds) < SAMPLE and sum(seconds) < MODEL_S:
        seconds.append(run())
    return BatchCost(statistics.median(seconds), 1e3 * (time.process_time() - began) / (b * len(seconds)))


def profile(costs: dict[int, BatchCost], engine: Engine, max_batch: int) -> Profile:
    """The time l(b) of every batch size b, from the measured ones."""
    table = {b: Timing(cost.seconds, cost.seconds) for b, cost in costs.items()}
    return Profile(table, max_batch, pads=engine.sizes is not None)


def drawn(captures: list[Capture]) -> dict[str, float]:
    """CPU milliseconds of drawing on a frame, and of encoding it."""
    overlay = Overlay()
    frames = list(_frames(captures))
    nothing = Prediction({}, 0, 1)
    pictures, render_ms = timed(lambda: [overlay.render(f, nothing) for f in frames], len(frames))
    with tempfile.TemporaryDirectory() as folder:
        video = VideoFile(Path(folder) / "bench.mp4")
        began = time.process_time()
        for frame, picture in zip(frames, pictures, strict=True):
            video.show(frame, picture)
        video.close(True)
        encode_ms = 1e3 * (time.process_time() - began) / max(len(frames), 1)
    return {"render": render_ms, "encode": encode_ms}


def _frames(captures: list[Capture]) -> Iterator[Frame]:
    for k, c in enumerate(captures):
        yield Frame("bench", 0, k, c.picture, c.pts_s, c.info, Trace(c.arrived_s, c.decoded_s))
