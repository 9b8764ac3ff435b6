"""Engines for workers that fail in every way; the luma of the frame, or a file, chooses the fault."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.predict.engines.probe import ProbeEngine, ProbeSlot

POISON, HANG, HELD, NOTHING, FEW, MEMORY, CANCELLED, UNPICKLABLE, EXIT = range(201, 210)
"""Frames of these lumas kill the worker, stop it, wait for the test, ..."""


class Stubborn(Exception):
    """An error that cannot be sent anywhere."""

    def __reduce__(self) -> Any:
        raise TypeError("not me")


class FaultyEngine(ProbeEngine):
    """A probe that obeys. `gate`: a FIFO; a frame of luma HELD waits until the test has opened and closed it."""

    def __init__(self, gate: Path | None = None) -> None:
        super().__init__()
        self._gate = gate

    def wait(self, slot: ProbeSlot, n: int) -> Any:
        lumas = {int(v) for v in slot.input[:n, 0]}
        if HELD in lumas:
            assert self._gate is not None
            self._gate.read_bytes()
        if POISON in lumas:
            os.kill(os.getpid(), signal.SIGKILL)
        if HANG in lumas:
            os.kill(os.getpid(), signal.SIGSTOP)
        if lumas & {NOTHING, FEW}:
            return None if NOTHING in lumas else (np.zeros((n, 3), np.float32),)
        for luma, error in ((MEMORY, MemoryError), (EXIT, SystemExit), (UNPICKLABLE, Stubborn)):
            if luma in lumas:
                raise error("as you wish")
        if CANCELLED in lumas:
            from concurrent.futures import CancelledError

            raise CancelledError
        return super().wait(slot, n)


class SlowEngine(FaultyEngine):
    """Is loaded when the FIFO `gate` has been opened and closed by the test, from the second time on; the first time at
    once, for which `loaded` is the mark."""

    def __init__(self, gate: Path, loaded: Path, *, always: bool = False) -> None:
        super().__init__(gate)
        self._loaded = loaded
        self._always = always

    def open(self, max_batch: int, slots: int) -> list[ProbeSlot]:
        if self._always or self._loaded.exists():
            assert self._gate is not None
            self._gate.read_bytes()
        self._loaded.touch()
        return super().open(max_batch, slots)


class BrokenEngine(ProbeEngine):
    """Cannot be opened; from the second time on if it is told where to leave a mark."""

    def __init__(self, opened: Path | None = None) -> None:
        super().__init__()
        self._opened = opened

    def open(self, max_batch: int, slots: int) -> list[ProbeSlot]:
        if self._opened is None or self._opened.exists():
            raise OSError("no model file")
        self._opened.touch()
        return super().open(max_batch, slots)


class DyingEngine(ProbeEngine):
    """Is killed while it loads."""

    def open(self, max_batch: int, slots: int) -> list[ProbeSlot]:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().open(max_batch, slots)
