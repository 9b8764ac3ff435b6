"""The torch engine of a model that is known by its name only: light enough to be handed to another process, unopened."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.predict.models import catalog


class NamedTorchEngine:
    """A `TorchEngine` whose network is loaded when it is opened, where it is opened."""

    name = "torch"

    def __init__(self, model: str, device: str, precision: str, threads: int, batch: int | None = None) -> None:
        """threads: of torch on the CPU; batch: the only size that the model takes."""
        self.device = device
        self.precision = precision
        self.classes = 0
        self.sizes: tuple[int, ...] | None = None if batch is None else (batch,)
        self._model = model
        self._threads = threads
        self._engine: Any = None

    def open(self, max_batch: int, slots: int) -> list[Any]:
        from pipelines.predict.engines.torch import CudaDevice, HostDevice, TorchEngine

        there = HostDevice() if self.device == "cpu" else CudaDevice(self.device)
        network = catalog.find(self._model).load()
        self._engine = TorchEngine(network, device=there, precision=self.precision, threads=self._threads)
        made: list[Any] = self._engine.open(max_batch, slots)
        self.classes, self.sizes = self._engine.classes, self._engine.sizes
        return made

    def start(self, slot: Any, n: int) -> None:
        self._engine.start(slot, n)

    def wait(self, slot: Any, n: int) -> npt.NDArray[np.float32]:
        logits: npt.NDArray[np.float32] = self._engine.wait(slot, n)
        return logits

    def memory_mb(self) -> float | None:
        memory: float | None = self._engine.memory_mb() if self._engine is not None else None
        return memory

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
