"""A device that a test can hold: copies and kernels run late, in an order that the test chooses, and read memory only then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from pipelines.frame import Frame, Picture, StreamInfo, Trace
from pipelines.predict.engines.engine import HostEngine, Slot
from pipelines.tasks.task import OutputSpec

CLASSES = 256


def picture(luma: int) -> Picture:
    """A 4x4 picture of one luma."""
    return Picture(np.full((4, 4), luma, np.uint8), np.full((2, 2), 128, np.uint8), np.full((2, 2), 128, np.uint8))


def frame(stream: str, index: int, luma: int, now: float) -> Frame:
    """A frame with the right label `luma`."""
    return Frame(stream, 0, index, picture(luma), None, StreamInfo(), Trace(now, now))


class Held:
    """Work that waits for the test."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._free = False
        self._allowed = 0
        self.waiting = 0

    def enter(self) -> None:
        """Called by the device: block until released."""
        with self._changed:
            self.waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._free or self._allowed > 0)
            self.waiting -= 1
            self._allowed -= not self._free

    def release(self, count: int = 1) -> None:
        """Let `count` pieces of work through."""
        with self._changed:
            self._allowed += count
            self._changed.notify_all()

    def open(self) -> None:
        """Let all through from now on."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def until_waiting(self) -> None:
        """Wait until the device has arrived at the gate."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.waiting > 0, 10)


class LateSlot(Slot):
    """A slot of the late engine."""

    def __init__(self, max_batch: int) -> None:
        super().__init__(np.zeros((max_batch, 1), np.uint8))


class LateEngine(HostEngine):
    """Answers with the byte that lies in the slot at the time of `wait`, not of `start`: a slot that is filled again too
    early shows as a wrong label. `fail` may raise for a batch's bytes; `answer` may spoil the logits."""

    name, precision = "late", "exact"
    outputs: tuple[OutputSpec, ...] = (OutputSpec((CLASSES,)),)

    def __init__(self, gate: Held | None = None, sizes: tuple[int, ...] | None = None) -> None:
        self.gate = gate
        self.sizes = sizes
        self.fail: Callable[[Sequence[int]], None] = lambda values: None
        self.fail_start: Callable[[Sequence[int]], None] = lambda values: None
        self.answer: Callable[[npt.NDArray[np.float32]], Any] = lambda logits: logits
        self.batches: list[int] = []
        self.closed = 0
        self.threads: set[str] = set()
        self._starts = 0
        self._changed = threading.Condition()

    def until_started(self, count: int) -> None:
        """Wait until `count` batches have been started."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._starts >= count, 10), f"{self._starts} of {count} batches were started"

    @property
    def starts(self) -> int:
        """Batches that were started, those of the warm-up too."""
        with self._changed:
            return self._starts

    def open(self, max_batch: int, slots: int) -> list[LateSlot]:
        return [LateSlot(max_batch) for _ in range(slots)]

    def start(self, slot: LateSlot, n: int) -> None:
        self.threads.add(threading.current_thread().name)
        with self._changed:
            self._starts += 1
            self._changed.notify_all()
        self.fail_start([int(v) for v in slot.input[:n, 0]])

    def wait(self, slot: LateSlot, n: int) -> Any:
        if threading.current_thread().name.startswith("complete"):
            self.batches.append(n)
            if self.gate is not None:
                self.gate.enter()
            self.fail([int(v) for v in slot.input[:n, 0]])
        logits = np.full((n, CLASSES), -20.0, np.float32)
        logits[np.arange(n), slot.input[:n, 0]] = 20.0
        rows = self.answer(logits) if threading.current_thread().name.startswith("complete") else logits
        return (rows,)

    def close(self) -> None:
        self.closed += 1


class LateEvent:
    """A point in a late stream."""

    def __init__(self, stream: LateStream, upto: int) -> None:
        self.stream, self.upto = stream, upto

    @property
    def done(self) -> bool:
        return self.stream.done >= self.upto

    def synchronize(self) -> None:
        self.stream.device.run_until(self)


class LateStream:
    """A stream with its work in a list. It can wait for another's event, as a CUDA stream does."""

    def __init__(self, device: LateDevice) -> None:
        self.device = device
        self.work: list[Callable[[], object] | LateEvent] = []
        self.done = 0

    def run(self, work: Callable[[], object]) -> None:
        self.work.append(work)

    def wait(self, event: LateEvent) -> None:
        self.work.append(event)

    def record(self) -> LateEvent:
        return LateEvent(self, len(self.work))

    def step(self) -> bool:
        """Do the next piece of work, if it may begin."""
        if self.done == len(self.work):
            return False
        work = self.work[self.done]
        if isinstance(work, LateEvent):
            if not work.done:
                return False
        else:
            work()
        self.done += 1
        return True


class LateDevice:
    """Streams that do nothing until a thread waits; then one step of each in turn, in the order of `turn`."""

    torch_device = torch.device("cpu")

    def __init__(self, turn: Callable[[list[LateStream]], list[LateStream]] = lambda streams: streams) -> None:
        self.streams: list[LateStream] = []
        self._turn = turn

    def stream(self) -> LateStream:
        self.streams.append(LateStream(self))
        return self.streams[-1]

    def pinned(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def run_until(self, event: LateEvent) -> None:
        while not event.done:
            assert any(s.step() for s in self._turn(list(self.streams))), "the streams wait for each other"
