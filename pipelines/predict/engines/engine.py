"""Engine: runs one model on one device. The predictor stages rows, starts a batch, and waits for it in another thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.errors import EngineError
from pipelines.frame import Picture, Region
from pipelines.predict.scheduling.profile import Profile
from pipelines.tasks.task import OutputSpec, Rows

if TYPE_CHECKING:  # a worker's process stages nothing: it needs neither FFmpeg nor OpenCV
    from pipelines.predict.preprocess import Preprocess


class Slot:
    """Staging memory for one batch, allocated once at the largest batch and reused.

    `input`: (max_batch, *input_shape) host array, pinned on CUDA. Owner: the stagers fill it row by row; the engine has it
    from `start` until `wait` has returned and the rows are copied out; then it is free again. An engine keeps other things
    that belong to a slot (request, buffers, events) in a subclass.
    """

    def __init__(self, input: npt.NDArray[Any]) -> None:
        self.input = input


class Engine(Protocol):
    """Runs one model on one device. An engine knows no task: it returns raw rows.

    Threads: `open`, `start`, `close` in the predictor's thread; `stage` in the predictor's thread and its stagers, each row
    in one of them; `wait` in the completion thread.
    """

    name: str
    precision: str
    device: str
    outputs: tuple[OutputSpec, ...]
    """One row of each output. Known after `open`; () before."""
    sizes: tuple[int, ...] | None
    """The batch sizes that it runs; the engine pads a batch in between. None: every size without padding."""
    parallel: int
    """Batches that it computes side by side."""
    preprocess: Preprocess | None
    """The preprocessing on the CPU that the default `stage` uses. The predictor sets it before `open`."""

    def known_profile(self, max_batch: int) -> Profile | None:
        """l(b) if the engine knows it; None: it is measured."""

    def open(self, max_batch: int, slots: int) -> list[Any]:
        """Load and compile the model and allocate `slots` staging slots (a list of `Slot`). May take seconds."""

    def stage(self, slot: Any, row: int, picture: Picture, region: Region) -> None:
        """Make a region of a picture the model's input in one row of a free slot."""

    def start(self, slot: Any, n: int) -> None:
        """Begin with the slot's first n rows. Returns at once if the device is asynchronous."""

    def wait(self, slot: Any, n: int) -> Rows:
        """Each output of a started slot, (n, *shape). Views that the slot's next `start` overwrites: copy them out first."""

    def memory_mb(self) -> float | None:
        """Device memory in use; None if the device is the CPU (the process's own memory is reported then)."""

    def close(self) -> None:
        """Free everything. Nothing is in flight any more."""


class HostEngine:
    """Base class of an engine with slots in host memory: defaults for the members that most engines share."""

    device = "cpu"
    outputs: tuple[OutputSpec, ...] = ()
    sizes: tuple[int, ...] | None = None
    parallel = 1
    preprocess: Preprocess | None = None

    def known_profile(self, max_batch: int) -> Profile | None:
        """Unknown."""
        return None

    def stage(self, slot: Slot, row: int, picture: Picture, region: Region) -> None:
        """Preprocess on the CPU, in the calling thread."""
        assert self.preprocess is not None
        self.preprocess(picture, region, slot.input[row])

    def memory_mb(self) -> float | None:
        """The device is the CPU."""
        return None

    def close(self) -> None:
        """Nothing to free."""


def warm_sizes(engine: Engine, max_batch: int) -> list[int]:
    """The sizes at which batches of up to `max_batch` run; none if the engine does not pad."""
    if engine.sizes is None:
        return []
    below = [s for s in engine.sizes if s < max_batch]
    return below + [s for s in engine.sizes if s >= max_batch][:1]


def padded(sizes: tuple[int, ...] | None, n: int) -> int:
    """The size at which a batch of n runs."""
    return n if sizes is None else next((s for s in sizes if s >= n), n)


def checked(rows: Any, n: int, outputs: Sequence[OutputSpec]) -> Rows:
    """The rows that an engine returned for a batch of n.

    :raises EngineError: if their number or a shape is not that of `outputs`.
    """
    wanted = [(n, *spec.shape) for spec in outputs]
    got = [np.shape(output) for output in rows] if isinstance(rows, tuple) else None
    if got != wanted:
        what = "nothing" if rows is None else f"shapes {got}" if got is not None else f"a {type(rows).__name__}"
        raise EngineError(f"the engine answered {what} for a batch of {n}; its outputs are {wanted}")
    answer: Rows = rows
    return answer
