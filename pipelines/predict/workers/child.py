"""The program of a worker's process: one engine, its batches in order, until the pipe ends.

Two threads, as in the predictor: the main one takes slots from the pipe and starts the engine, `complete` waits for it and
sends the answers. The worker ends with its predictor's process, also if that is killed, and leaves Ctrl-C and SIGTERM to it:
batches in flight are still answered.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from pipelines.channel import Channel
from pipelines.predict.engines.engine import Engine, checked
from pipelines.predict.workers import shared_slots
from pipelines.process import end_with_parent


@dataclass(frozen=True, slots=True)
class Opened:
    """The engine is open, and the shared block has its size."""

    layout: shared_slots.SlotLayout
    sizes: tuple[int, ...] | None
    precision: str
    device: str


@dataclass(frozen=True, slots=True)
class Done:
    """The outputs of a slot lie in the shared block. memory_mb: of the device (see `Engine`)."""

    slot: int
    memory_mb: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the engine: pickled (empty if that fails), and in words."""

    error: bytes
    text: str


@dataclass(frozen=True, slots=True)
class _Started:
    """A started batch of n rows. error: the reason if the start failed."""

    slot: int
    n: int
    error: BaseException | None


def main(pipe: int, memory: int, parent: int) -> None:
    """Run the process. pipe, memory: descriptors. parent: the process id of the predictor's process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not end_with_parent(parent):
        return
    with Connection(pipe) as ours:
        try:
            _serve(ours, memory)
        except (EOFError, OSError):
            return  # the predictor has closed the pipe, or its process has ended


def _serve(pipe: Connection, memory: int) -> None:
    raw = pipe.recv_bytes()
    try:
        engine, max_batch, count = pickle.loads(raw)
        slots = engine.open(max_batch, count)
        layout = shared_slots.SlotLayout(count, len(slots[0].input), tuple(slots[0].input.shape[1:]), engine.outputs)
        os.truncate(memory, layout.size)
        block = shared_slots.SharedSlots(memory, layout)
    except BaseException as error:
        pipe.send(_failed(error))
        return
    started: Channel[_Started] = Channel(count + 1, "block")
    completing = threading.Thread(target=_complete, args=(pipe, engine, slots, block, started), name="complete")
    completing.start()
    try:
        pipe.send(Opened(layout, engine.sizes, engine.precision, engine.device))
        while True:
            slot, n = pipe.recv()
            started.put(_Started(slot, n, _start(engine, slots[slot], block.inputs[slot], n)))
    finally:
        started.close()
        completing.join()
        engine.close()


def _start(engine: Engine, slot: Any, rows: Any, n: int) -> BaseException | None:
    """Copy the rows and start: an engine's own slot may be pinned or padded. 0.1 ms for 16 pictures of 224x224."""
    slot.input[:n] = rows[:n]
    try:
        engine.start(slot, n)
    except BaseException as error:
        return error
    return None


def _complete(
    pipe: Connection, engine: Engine, slots: Any, block: shared_slots.SharedSlots, started: Channel[_Started]
) -> None:
    """Answer every started batch in order. Thread: complete."""
    gone = False
    for batch in started:
        try:
            if batch.error is not None:
                raise batch.error
            rows = checked(engine.wait(slots[batch.slot], batch.n), batch.n, engine.outputs)
            for shared, output in zip(block.outputs, rows, strict=True):
                shared[batch.slot][: batch.n] = output
            answer: Done | Failed = Done(batch.slot, engine.memory_mb())
        except BaseException as error:
            answer = _failed(error)
        try:
            if not gone:
                pipe.send(answer)
        except OSError:
            gone = True  # the main thread sees it, too, and ends both threads


def _failed(error: BaseException) -> Failed:
    try:
        raw = pickle.dumps(error)
    except Exception:
        raw = b""
    return Failed(raw, f"{type(error).__name__}: {error}")
