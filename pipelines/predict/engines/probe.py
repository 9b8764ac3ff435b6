"""A diagnostic engine: its answer is the mean luma of the picture, and a batch takes as long as it is told to.

It shows swapped, lost and repeated results exactly and measures the pipeline's own cost. It imports neither torch nor timm.
"""

from __future__ import annotations

import time

import numpy as np

from pipelines.predict.engines.engine import HostEngine, Slot
from pipelines.predict.scheduling.profile import Profile, Timing, measured_sizes
from pipelines.tasks.task import OutputSpec, Rows

CLASSES = 256


class ProbeSlot(Slot):
    """A slot and the time at which its batch will be done."""

    def __init__(self, max_batch: int) -> None:
        super().__init__(np.zeros((max_batch, 1), np.uint8))
        self.output = np.zeros((max_batch, CLASSES), np.float32)
        self.done_s = 0.0


class ProbeEngine(HostEngine):
    """A batch of b takes `per_batch_s + b * per_frame_s` seconds, one batch after the other as on a device. Class k has the
    logit 0 if k is the mean luma of the row's region, minus infinity otherwise."""

    name = "probe"
    precision = "exact"
    outputs: tuple[OutputSpec, ...] = (OutputSpec((CLASSES,)),)

    def __init__(self, per_batch_s: float = 0.0, per_frame_s: float = 0.0) -> None:
        self._per_batch_s = per_batch_s
        self._per_frame_s = per_frame_s
        self._free_s = 0.0

    def known_profile(self, max_batch: int) -> Profile:
        """l(b) as it was asked for: there is nothing to measure."""
        sizes = measured_sizes(max_batch)
        times = [self._per_batch_s + b * self._per_frame_s for b in sizes]
        return Profile({b: Timing(t, t) for b, t in zip(sizes, times, strict=True)}, max_batch)

    def open(self, max_batch: int, slots: int) -> list[ProbeSlot]:
        return [ProbeSlot(max_batch) for _ in range(slots)]

    def start(self, slot: ProbeSlot, n: int) -> None:
        slot.done_s = max(self._free_s, time.monotonic()) + self._per_batch_s + n * self._per_frame_s
        self._free_s = slot.done_s

    def wait(self, slot: ProbeSlot, n: int) -> Rows:
        wait_s = slot.done_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        logits = slot.output[:n]
        logits[:] = -np.inf
        logits[np.arange(n), slot.input[:n, 0]] = 0.0
        return (logits,)
