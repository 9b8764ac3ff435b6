"""Requests straight to a predictor, as fast as it answers: clients that wait for each answer, and a stream that does not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from pipelines.channel import Channel, Closed
from pipelines.crew import Crew
from pipelines.frame import Frame, Picture, Prediction, StreamInfo, Trace
from pipelines.monitor.histogram import Histogram
from pipelines.predict.models.builder import Model
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions

BUDGET_S = 10.0
"""Budget of a request; long enough that none is refused."""
SETTLE = 0.2
"""Share of the time that is not counted at the beginning."""


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Answers of one load. per_s: answers a second; p50_ms, p99_ms: latency of an answer, None if no client waits for it."""

    per_s: float
    mean_batch: float
    p50_ms: float | None = None
    p99_ms: float | None = None


class Answering:
    """A predictor of `model` with limits of its own, used as `with answering:`. `known`: the measured times of its batches.

    most: the largest batch; ahead: batches that may be staged while as many as the engine computes side by side run.
    """

    def __init__(self, model: Model, known: Profile, *, most: int, parallel: int, ahead: int) -> None:
        engine = model.engine
        options = PredictorOptions(
            known=known.table,
            scheduler=SchedulerOptions(budget_s=BUDGET_S, max_batch=most, slots=parallel + ahead, parallel=parallel),
        )
        self.predictor = AsyncBatchPredictor(engine, model.preprocess, model.task, options, events=PredictorEvents(self._batch))
        self.frames = self.batches = 0
        """Frames and batches that have ended."""

    def _batch(self, size: int, seconds: float) -> None:
        self.frames += size
        self.batches += 1

    def __enter__(self) -> Answering:
        self.predictor.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.predictor.__exit__(kind, error, trace)


def one_by_one(answering: Answering, picture: Picture, clients: int, seconds: float) -> LoadFigures:
    """Several clients; each sends its next request after its answer."""
    predictor, took = answering.predictor, [Histogram() for _ in range(clients)]
    frames, batches = answering.frames, answering.batches
    begin_s = time.monotonic() + SETTLE * seconds
    between = begin_s, begin_s + seconds
    with Crew(predictor.stop) as crew:
        for k, each in enumerate(took):
            ask = partial(_ask, predictor, f"client {k}", picture, between, each.add)
            crew.start(f"client:{k}", ask)
    merged = Histogram()
    for each in took:
        merged.merge(each)
    p50_s, p99_s = merged.quantile(0.5) or 0.0, merged.quantile(0.99) or 0.0
    mean = (answering.frames - frames) / max(answering.batches - batches, 1)
    return LoadFigures(merged.count / seconds, mean, 1e3 * p50_s, 1e3 * p99_s)


def _ask(
    predictor: AsyncBatchPredictor, name: str, picture: Picture, between: tuple[float, float], took: Callable[[float], None]
) -> None:
    predictor.open(name, live=True)
    for index in count():
        frame = _frame(name, index, picture)
        if frame.trace.arrived_s > between[1]:
            break
        predictor.submit(frame).result()
        frame.trace.shown_s = now = time.monotonic()
        predictor.finish(frame)
        if between[0] <= now < between[1]:
            took(now - frame.trace.arrived_s)
    predictor.close(name)


def stream(answering: Answering, picture: Picture, seconds: float) -> LoadFigures:
    """One stream that loses nothing and does not wait for answers, as a file."""
    predictor, answered = answering.predictor, 0
    frames, batches = answering.frames, answering.batches
    pending: Channel[tuple[Frame, Future[Prediction]]] = Channel(4096, "block")
    begin_s = time.monotonic() + SETTLE * seconds
    end_s = begin_s + seconds

    def send() -> None:
        with suppress(Closed):  # the other thread failed
            for index in count():
                frame = _frame("stream", index, picture)
                if frame.trace.arrived_s > end_s:
                    break
                pending.put((frame, predictor.submit(frame)))
        predictor.close("stream")
        pending.close()

    def abort() -> None:
        predictor.stop()
        pending.close()

    predictor.open("stream", live=False)
    with Crew(abort) as crew:
        crew.start("client:stream", send)
        for frame, future in pending:
            future.result()
            predictor.finish(frame)
            answered += begin_s <= time.monotonic() < end_s
    mean = (answering.frames - frames) / max(answering.batches - batches, 1)
    return LoadFigures(answered / seconds, mean)


def middle(loads: Sequence[LoadFigures]) -> LoadFigures:
    """The median of each figure over several rounds."""

    def median(values: list[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return statistics.median(known) if known else None

    p50_ms, p99_ms = median([x.p50_ms for x in loads]), median([x.p99_ms for x in loads])
    return LoadFigures(
        statistics.median(x.per_s for x in loads), statistics.median(x.mean_batch for x in loads), p50_ms, p99_ms
    )


def _frame(name: str, index: int, picture: Picture) -> Frame:
    now = time.monotonic()
    return Frame(name, 0, index, picture, None, StreamInfo(), Trace(now, now))
