"""The torch engine of a network that is loaded when the engine is opened: small enough to be sent to another process before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.predict.engines.engine import HostEngine
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.prepared import EnginePlace, Prepared
from pipelines.tasks.task import Rows


class LazyTorchEngine(HostEngine):
    """A `TorchEngine` that loads its network in `open`, in the process that opens it."""

    name = "torch"

    def __init__(
        self, load: Callable[[], LoadedModel], device: str, precision: str, threads: int, batch: int | None = None
    ) -> None:
        """load: can be pickled; threads: of torch on the CPU; batch: the only size that the model takes."""
        self.device = device
        self.precision = precision
        self.sizes = None if batch is None else (batch,)
        self._load = load
        self._threads = threads
        self._engine: Any = None

    def open(self, max_batch: int, slots: int) -> list[Any]:
        self._engine = _loaded_engine(self._load(), self.device, self.precision, self._threads)
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


def _loaded_engine(loaded: LoadedModel, device: str, precision: str, threads: int) -> Any:
    from pipelines.predict.engines.torch import CudaDevice, HostDevice, TorchEngine

    there = HostDevice() if device == "cpu" else CudaDevice(device)
    return TorchEngine(loaded, device=there, precision=precision, threads=threads)


# Its line in the table of kinds.


def engine(prepared: Prepared, place: EnginePlace) -> Any:
    """An engine of the loaded network, or of one that is loaded where the engine is opened."""
    if place.apart:
        return LazyTorchEngine(prepared.load, place.device, place.precision, place.threads, prepared.batch)
    return _loaded_engine(prepared.loaded or prepared.load(), place.device, place.precision, place.threads)
