"""A run of the scheduler on a clock that moves by events: streams, a device with a given shape of time, lanes of no cost."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from pipelines.frame import NOTHING, Frame, StreamInfo, Trace
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.predict.scheduling.queues import Part
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def profile(per_batch_s: float, per_frame_s: float, max_batch: int = 32) -> Profile:
    """l(b) = per_batch_s + b * per_frame_s, without noise."""
    return Profile({b: Timing(t := per_batch_s + b * per_frame_s, t) for b in range(1, max_batch + 1)}, max_batch)


def frame(stream: str, index: int, arrived_s: float) -> Frame:
    """A frame without a picture."""
    return Frame(stream, 0, index, NOTHING, None, StreamInfo(), Trace(arrived_s, arrived_s))


@dataclass
class Outcome:
    """The ends of the frames. ages_s: seconds from the arrival of a served frame to the end of its batch."""

    captured: int = 0
    ages_s: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    served: dict[str, int] = field(default_factory=dict)

    def goodput(self, budget_s: float = 0.050) -> float:
        return sum(age <= budget_s for age in self.ages_s) / self.captured

    def quantile(self, q: float) -> float:
        return sorted(self.ages_s)[int(q * (len(self.ages_s) - 1))]

    def mean_batch(self) -> float:
        return sum(self.sizes) / len(self.sizes)

    def jain(self) -> float:
        """Jain's index of fairness: 1 if every stream was served equally often."""
        n = list(self.served.values())
        return sum(n) ** 2 / (len(n) * sum(x * x for x in n))


def simulate(
    streams: int,
    shape: Profile,
    seconds: float,
    *,
    fps: float = 25.0,
    jitter_s: float = 0.0,
    noise: Callable[[random.Random], float] = lambda r: 1.0,
    options: SchedulerOptions | None = None,
    stage_s: float = 0.0,
    seed: int = 1,
    settle_s: float = 2.0,
) -> Outcome:
    """Live streams of random phase on one device. `noise` multiplies the time of each batch, `stage_s` is the time of
    staging a frame. The first `settle_s` are not counted. Batches that run side by side end in the order in which they began,
    as the completion thread waits for them."""
    chance = random.Random(seed)
    clock = ManualClock()
    scheduler = DynamicBatchScheduler(shape, options or SchedulerOptions(), clock)
    start, outcome, order = clock.now, Outcome(), count()
    events: list[tuple[float, int, str, object]] = []
    for k in range(streams):
        name = f"s{k}"
        scheduler.open(name, live=True)
        outcome.served[name] = 0
        heapq.heappush(events, (start + chance.random() / fps, next(order), "due", (name, 0)))
    wakes: set[float] = set()
    index: int
    places_s = [start] * (options or SchedulerOptions()).parallel
    last_s = start

    def counted(arrived_s: float) -> bool:
        return start + settle_s <= arrived_s <= start + seconds - 1

    while events and events[0][0] < start + seconds:
        clock.now, _, kind, what = heapq.heappop(events)
        if kind == "due":
            name, index = what  # type: ignore[misc]
            late = chance.random() * jitter_s
            heapq.heappush(events, (clock.now + late, next(order), "frame", (name, index)))
            heapq.heappush(events, (clock.now + 1 / fps, next(order), "due", (name, index + 1)))
            continue
        if kind == "frame":
            name, index = what  # type: ignore[misc]
            outcome.captured += counted(clock.now)
            scheduler.submit(frame(name, index, clock.now))
        elif kind == "done":
            _finish(scheduler, what, clock, outcome, counted)  # type: ignore[arg-type]
        batch = scheduler.poll()
        if batch:
            took = shape.table[len(batch)].median_s * noise(chance)
            staged = len(batch) * stage_s
            scheduler.staged(len(batch), staged)
            places_s[0] = max(places_s[0], clock.now + staged) + took
            last_s = max(last_s, places_s[0])
            places_s.sort()
            heapq.heappush(events, (last_s, next(order), "done", (batch, took)))
            heapq.heappush(events, (clock.now + staged, next(order), "staged", None))
        else:
            wake = scheduler.decide().wake_s
            if wake is not None and wake not in wakes:
                wakes.add(wake)
                heapq.heappush(events, (max(wake, clock.now), next(order), "wake", None))
    return outcome


def _finish(
    scheduler: DynamicBatchScheduler,
    what: tuple[list[Part], float],
    clock: ManualClock,
    outcome: Outcome,
    counted: Callable[[float], bool],
) -> None:
    batch, took = what
    scheduler.profile.observe(len(batch), took, clock.now)
    scheduler.done()
    any_counted = False
    for entry in batch:
        trace = entry.frame.trace
        trace.inferred_s = trace.shown_s = clock.now
        scheduler.finish(entry.frame)
        if counted(trace.arrived_s):
            any_counted = True
            outcome.ages_s.append(clock.now - trace.arrived_s)
            outcome.served[entry.frame.stream] += 1
    if any_counted:
        outcome.sizes.append(len(batch))
