"""What runs in a worker's process: one engine, its batches in order, until the pipe ends.

Two threads, as in the predictor: the main one takes slots from the pipe and starts the engine, `complete` waits for it and
sends the answers. The worker ends with its predictor's process, whatever becomes of that, and leaves Ctrl-C and SIGTERM to
it: what is in flight is to be answered.
"""

from __future__ import annotations

import ctypes
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

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Opened:
    """The engine is open, and the shared block has its size."""

    layout: shared_slots.SlotLayout
    sizes: tuple[int, ...] | None
    precision: str
    device: str


@dataclass(frozen=True, slots=True)
class Done:
    """The answers of a slot lie in the shared block. `memory_mb`: of the device (see `Engine`)."""

    slot: int
    memory_mb: float | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine raised: pickled, and in words for the case that it cannot be read."""

    error: bytes
    text: str


@dataclass(frozen=True, slots=True)
class _Started:
    """A batch, or why it could not be started."""

    slot: int
    n: int
    error: BaseException | None


def main(pipe: int, memory: int, parent: int) -> None:
    """The process's whole life. `pipe`, `memory`: descriptors; `parent`: whose death is its own."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A worker that is stopped, or deep in a library, sees no end of a pipe.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    with Connection(pipe) as ours:
        try:
            _serve(ours, memory)
        except (EOFError, OSError):
            return  # the predictor has closed the pipe, or is gone


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
    """Copied: an engine's own slot may be pinned or padded. 0.1 ms for 16 pictures of 224x224."""
    slot.input[:n] = rows[:n]
    try:
        engine.start(slot, n)
    except BaseException as error:
        return error
    return None


def _complete(
    pipe: Connection, engine: Engine, slots: Any, block: shared_slots.SharedSlots, started: Channel[_Started]
) -> None:
    """Thread complete: every started batch in order."""
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
            gone = True  # the main thread sees it, too, and ends both


def _failed(error: BaseException) -> Failed:
    try:
        raw = pickle.dumps(error)
    except Exception:
        raw = b""
    return Failed(raw, f"{type(error).__name__}: {error}")
