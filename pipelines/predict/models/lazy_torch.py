"""The torch engine of a model by its name: small enough to be sent to another process before it is opened."""

from __future__ import annotations

from typing import Any

from pipelines.predict.engines.engine import HostEngine
from pipelines.predict.models import catalog
from pipelines.tasks.task import Rows


class NamedTorchEngine(HostEngine):
    """A `TorchEngine` that loads its network in `open`, in the process that opens it."""

    name = "torch"

    def __init__(self, model: str, device: str, precision: str, threads: int, batch: int | None = None) -> None:
        """threads: of torch on the CPU; batch: the only size that the model takes."""
        self.device = device
        self.precision = precision
        self.sizes = None if batch is None else (batch,)
        self._model = model
        self._threads = threads
        self._engine: Any = None

    def open(self, max_batch: int, slots: int) -> list[Any]:
        from pipelines.predict.engines.torch import CudaDevice, HostDevice, TorchEngine

        there = HostDevice() if self.device == "cpu" else CudaDevice(self.device)
        network = catalog.find(self._model).load()
        self._engine = TorchEngine(network, device=there, precision=self.precision, threads=self._threads)
        made: list[Any] = self._engine.open(max_batch, slots)
        self.outputs, self.sizes = self._engine.outputs, self._engine.sizes
        return made

    def start(self, slot: Any, n: int) -> None:
        self._engine.start(slot, n)

    def wait(self, slot: Any, n: int) -> Rows:
        rows: Rows = self._engine.wait(slot, n)
        return rows

    def memory_mb(self) -> float | None:
        memory: float | None = self._engine.memory_mb() if self._engine is not None else None
        return memory

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
