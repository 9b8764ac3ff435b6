"""An engine at the other end of a pipe, in a process of its own.

The process is a fresh interpreter, never a fork, and no start method is set: the worker is independent of the caller's main
module and of its state (CUDA, threads). Model inputs and outputs lie in memory that both map (`shared_slots.py`); only slot
numbers go through the pipe. The end of the pipe tells each side that the other is gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy.typing as npt

from pipelines.errors import EngineError, EngineLost
from pipelines.predict.engines.engine import Engine, HostEngine, Slot
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.workers import shared_slots
from pipelines.predict.workers.child import Done, Failed, Opened
from pipelines.process import resident_mb
from pipelines.tasks.task import Rows

BOOT = "import sys; sys.path[:] = {path!r}; from pipelines.predict.workers.child import main; main({pipe}, {memory}, {parent})"
WARM_LIMIT_S = 120.0
"""Limit of one batch before l(b) is known: the first batches compile."""
SLICE_S = 0.1
"""A wait is counted in slices, so that a stop of this process (Ctrl-Z) does not count as a hang of the worker."""
END_LIMIT_S = 1.0
"""Longest wait for a worker that is ending."""


class WorkerSlot(Slot):
    """One slot of the shared block. index: its number; outputs: its rows of each output."""

    def __init__(self, index: int, input: npt.NDArray[Any], outputs: Rows) -> None:
        super().__init__(input)
        self.index = index
        self.outputs = outputs


class WorkerEngine(HostEngine):
    """Runs `engine` in a worker. The engine is sent there before it is opened.

    :raises EngineLost: from `start` and `wait`, if the worker died, or was killed because a batch of n took longer than
        `limit_s(n)`.
    """

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.precision = engine.precision
        self.device = engine.device
        self.sizes = engine.sizes
        self.parallel = engine.parallel
        self.limit_s: Callable[[int], float] = lambda n: WARM_LIMIT_S
        self._engine = engine
        self._lock = threading.Lock()
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._memory_mb: float | None = None

    # The engine: see `Engine` for the threads.

    def open(self, max_batch: int, slots: int) -> list[WorkerSlot]:
        """Start the worker and wait without a limit until it has loaded its model. The block is unmapped with the last slot.

        :raises EngineLost: if the worker died before, or was killed. An error of the engine's own `open` is raised, too.
        """
        memory = shared_slots.make()
        try:
            self._start_process(memory)
            self._send((self._engine, max_batch, slots))
            opened = self._receive(None)
            assert isinstance(opened, Opened)
            self.outputs, self.sizes = opened.layout.outputs, opened.sizes
            self.precision, self.device = opened.precision, opened.device
            block = shared_slots.SharedSlots(os.dup(memory), opened.layout)
        finally:
            os.close(memory)
        return [WorkerSlot(k, block.inputs[k], tuple(o[k] for o in block.outputs)) for k in range(slots)]

    def _start_process(self, memory: int) -> None:
        ours, theirs = Pipe()
        code = BOOT.format(path=sys.path, pipe=theirs.fileno(), memory=memory, parent=os.getpid())
        with self._lock:
            self._pipe = ours
            if self._killed:
                theirs.close()
                raise EngineLost("its worker was not started")
            # The output of a library must not come between the program's results.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        theirs.close()

    def start(self, slot: WorkerSlot, n: int) -> None:
        self._send((slot.index, n))

    def wait(self, slot: WorkerSlot, n: int) -> Rows:
        done = self._receive(self.limit_s(n))
        if not isinstance(done, Done) or done.slot != slot.index:
            raise EngineError(f"the worker answered {done}; the predictor waits for slot {slot.index}")
        self._memory_mb = done.memory_mb
        return tuple(output[:n] for output in slot.outputs)

    def known_profile(self, max_batch: int) -> Profile | None:
        return self._engine.known_profile(max_batch)

    def memory_mb(self) -> float | None:
        """Memory of the worker's device, or of its process if the device is the CPU. After `close`: the last value."""
        if self.device == "cpu" and self.pid is not None:
            self._memory_mb = resident_mb(self.pid) or self._memory_mb
        return self._memory_mb

    def close(self) -> None:
        self.memory_mb()
        with self._lock:
            self._killed = True
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_LIMIT_S)
            self._process.kill()
            self._process.wait()

    # For the pool.

    @property
    def pid(self) -> int | None:
        """The id of the worker's process; None unless it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def kill(self) -> None:
        """End the worker at once, also while it loads its model. Any thread."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def join(self) -> str:
        """Wait until the worker's process has ended; its end in words. Any thread."""
        assert self._process is not None
        return _end_in_words(self._process.wait())

    # The pipe.

    def _send(self, message: Any) -> None:
        assert self._pipe is not None
        try:
            self._pipe.send(message)
        except OSError as error:
            raise EngineLost(self._loss_reason()) from error

    def _receive(self, limit_s: float | None) -> Any:
        """The worker's next message. An error of the engine over there is raised."""
        assert self._pipe is not None
        try:
            if not self._answers(limit_s):
                self.kill()
                raise EngineLost(f"its worker answered nothing for {limit_s:.1f} s and was killed")
            message = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise EngineLost(self._loss_reason()) from error
        if isinstance(message, Failed):
            raise _error(message)
        return message

    def _answers(self, limit_s: float | None) -> bool:
        """Wait for a message, or the pipe's end."""
        assert self._pipe is not None
        if limit_s is None:
            return self._pipe.poll(None)
        left_s = limit_s
        while left_s > 0:
            began_s = time.monotonic()
            if self._pipe.poll(min(SLICE_S, left_s)):
                return True
            left_s -= min(time.monotonic() - began_s, 2 * SLICE_S)
        return False

    def _loss_reason(self) -> str:
        """Why the pipe has ended, in words that follow the engine's name.

        Waits up to END_LIMIT_S for the process to end. Thread: the predictor's, or its completion.
        """
        assert self._process is not None
        try:
            return _end_in_words(self._process.wait(END_LIMIT_S))
        except subprocess.TimeoutExpired:
            return "the pipe to its worker has ended"


def _end_in_words(code: int) -> str:
    """The end of a process, in words."""
    if code >= 0:
        return f"its worker ended with code {code}"
    try:
        return f"its worker was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its worker was ended by signal {-code}"


def _error(failed: Failed) -> BaseException:
    """The error of the engine in the worker."""
    try:
        error = pickle.loads(failed.error)
    except Exception:
        error = None
    return error if isinstance(error, BaseException) else EngineError(failed.text)
