"""What the predictor asks of an engine: staging slots, start without waiting, wait elsewhere."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.errors import EngineError


class Slot:
    """Staging memory for one batch, allocated once at the largest batch and reused.

    `input`: (max_batch, *input_shape) host array (pinned on CUDA) that the predictor's thread fills row by row.
    Whose it is: the predictor's thread fills it, the engine has it from `start` until `wait` has returned and the rows
    are copied out, then it is free again. An engine keeps what belongs to the slot beside it (request, buffers, events).
    """

    def __init__(self, input: npt.NDArray[Any]) -> None:
        self.input = input


class Engine(Protocol):
    """Runs one model on one device. `open`, `start`, `close` in the predictor's thread, `wait` in the completion thread."""

    name: str
    precision: str
    device: str
    classes: int
    """Known after `open`."""
    sizes: tuple[int, ...] | None
    """The batch sizes that it runs; a batch in between is padded up by the engine. None: every size as it is."""

    def open(self, max_batch: int, slots: int) -> list[Any]:
        """Load and compile the model, allocate `slots` staging slots (a list of `Slot`). May take seconds."""

    def start(self, slot: Any, n: int) -> None:
        """Begin with the slot's first n rows. Returns at once where the device is asynchronous."""

    def wait(self, slot: Any, n: int) -> npt.NDArray[np.float32]:
        """The (n, classes) logits of a started slot. A view that the slot's next `start` overwrites: copy out first."""

    def memory_mb(self) -> float | None:
        """Device memory in use; None where the device is the CPU (the process's own memory is reported then)."""

    def close(self) -> None:
        """Free everything. Nothing is in flight any more."""


def warm_sizes(engine: Engine, max_batch: int) -> list[int]:
    """The sizes that batches of up to `max_batch` really run at; none where every size is like every other."""
    if engine.sizes is None:
        return []
    below = [s for s in engine.sizes if s < max_batch]
    return below + [s for s in engine.sizes if s >= max_batch][:1]


def checked(logits: Any, n: int, classes: int) -> npt.NDArray[np.float32]:
    """The answer to a batch of n, if it is one.

    :raises EngineError: if it has another shape.
    """
    if np.shape(logits) != (n, classes):
        got = "nothing" if logits is None else f"shape {np.shape(logits)}"
        raise EngineError(f"the engine answered {got} for a batch of {n} with {classes} classes")
    answer: npt.NDArray[np.float32] = logits
    return answer
