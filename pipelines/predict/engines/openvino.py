"""OpenVINO on the CPU: the fastest faithful engine of a machine without a GPU.

The model takes uint8 NCHW RGB and normalises inside: a slot has a quarter of the size, and the first layer reads each pixel
once. The input is shared memory and is not copied.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.predict.engines.engine import HostEngine, Slot, padded
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.prepared import EnginePlace, Prepared
from pipelines.tasks.task import OutputSpec, Rows

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""The sizes that the engine runs. The first use of each costs 20 to 400 ms, all of 1..32 cost 12 s: too long for the warm-up,
and too long for a frame. A batch in between is padded, by a third at most."""


HINTS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}
"""OpenVINO's precision by ours. The layers of an int8 model that are not integer are computed exactly: in the default model
none of them takes time (4.0 ms a frame; 4.2 in bf16)."""


class OpenVinoSlot(Slot):
    """A slot with its own infer request."""

    def __init__(self, input: npt.NDArray[np.uint8], request: Any) -> None:
        super().__init__(input)
        self.request = request


class OpenVinoEngine(HostEngine):
    """An OpenVINO model file (.xml) with a dynamic first dimension and uint8 input of shape (b, 3, H, W)."""

    name = "openvino"

    def __init__(
        self, model: Path, precision: str, threads: int, cache: Path | None, batch: int | None = None, parallel: int = 1
    ) -> None:
        """cache: a folder for compiled models. batch: the only size that the model takes; None: any. parallel: batches that run
        side by side, each on its share of the threads."""
        self.precision = precision
        self.sizes = SIZES if batch is None else (batch,)
        self._path = model
        self._threads = threads
        self.parallel = parallel
        self._cache = cache
        self._compiled: Any = None

    def open(self, max_batch: int, slots: int) -> list[OpenVinoSlot]:
        ov = import_openvino()

        core = ov.Core()
        if self._cache is not None:
            core.set_property({"CACHE_DIR": str(self._cache)})
        with _alone(self._cache):
            self._compiled = core.compile_model(str(self._path), "CPU", self._properties())
        # A padded batch must fit: a slot has the rows of the largest batch after padding.
        rows = padded(self.sizes, max_batch)
        shape = [d.get_length() for d in list(self._compiled.input(0).partial_shape)[1:]]
        self.outputs = tuple(_spec(output) for output in self._compiled.outputs)
        return [OpenVinoSlot(np.zeros((rows, *shape), np.uint8), self._compiled.create_infer_request()) for _ in range(slots)]

    def _properties(self) -> dict[str, Any]:
        # One stream over all threads ends a batch as early as possible. The threads of a stream wait for each other after
        # every layer, and for a thread that a decoder has displaced: if one thread is fast enough for a batch, streams of one
        # thread each serve more. Without pinning, because decoders and encoders share these cores. The precision is always
        # stated: OpenVINO's default is bf16 if the CPU has it.
        return {
            "PERFORMANCE_HINT": "LATENCY" if self.parallel == 1 else "THROUGHPUT",
            "NUM_STREAMS": self.parallel,
            "INFERENCE_NUM_THREADS": self._threads,
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "ENABLE_CPU_PINNING": False,
        }

    def start(self, slot: OpenVinoSlot, n: int) -> None:
        ov = import_openvino()

        slot.request.set_input_tensor(ov.Tensor(slot.input[: padded(self.sizes, n)], shared_memory=True))
        slot.request.start_async()

    def wait(self, slot: OpenVinoSlot, n: int) -> Rows:
        slot.request.wait()
        return tuple(slot.request.get_output_tensor(k).data[:n] for k in range(len(self.outputs)))

    def close(self) -> None:
        self._compiled = None


def _spec(output: Any) -> OutputSpec:
    """The specification of one row of an OpenVINO output."""
    shape = tuple(d.get_length() for d in list(output.partial_shape)[1:])
    return OutputSpec(shape, np.dtype(output.element_type.to_dtype()))


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Hold the folder's lock: workers that start together would each compile, and might read an unfinished file of another.
    Without a lock if the folder cannot be written: then nothing is cached either."""
    with ExitStack() as stack:
        if folder is not None:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((folder / "lock").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Its line in the table of kinds.


def engine(prepared: Prepared, place: EnginePlace) -> OpenVinoEngine:
    """An engine of the model's converted form."""
    assert prepared.folder is not None
    model, compiled = prepared.folder / "model.xml", prepared.folder / "compiled"
    return OpenVinoEngine(model, place.precision, place.threads, compiled, prepared.batch, place.parallel)


def prepare(model: LoadedModel, folder: Path) -> None:
    """Convert the network. Only here are torch and the converter imported: a worker that runs the converted form needs neither.

    :raises UsageError: if OpenVINO cannot take it.
    """
    from pipelines.predict.engines import openvino_convert

    openvino_convert.save(openvino_convert.from_network(model), folder / "model.xml")


def missing(precision: str) -> str | None:
    """Why this CPU cannot run a precision."""
    if precision != "bf16":
        return None
    capabilities: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return None if "BF16" in capabilities else "this CPU has no bf16 arithmetic"
