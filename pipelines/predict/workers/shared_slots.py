"""The memory that a worker shares with its predictor: the input rows of every slot, and their outputs.

It is a descriptor without a name (memfd), closed after both sides have mapped it: however a process ends, the kernel frees
the memory with the last mapping, and nothing is left in /dev/shm.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.tasks.task import OutputSpec

ALIGNED = 64
"""Bytes: a cache line, and the alignment of vector loads."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """A block of `slots` times `rows` rows: the inputs (`shape`, uint8), then each output by its specification."""

    slots: int
    rows: int
    shape: tuple[int, ...]
    outputs: tuple[OutputSpec, ...]

    @property
    def parts(self) -> tuple[OutputSpec, ...]:
        """The arrays of the block in their order, as specifications of one row."""
        return (OutputSpec(self.shape, np.dtype(np.uint8)), *self.outputs)

    @property
    def offsets(self) -> list[int]:
        """The first byte of each part; the last entry is the end of the block."""
        rows = self.slots * self.rows
        sizes = (-(-rows * math.prod(p.shape) * p.dtype.itemsize // ALIGNED) * ALIGNED for p in self.parts)
        return list(accumulate(sizes, initial=0))

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return self.offsets[-1]


def make() -> int:
    """The descriptor of a block without a size."""
    return os.memfd_create("watchline-slots")


class SharedSlots:
    """The mapped block as arrays. `inputs`: (slots, rows, *shape); `outputs`: one array (slots, rows, *shape) per output.

    Owner of an input row: the predictor until the slot is started, and again after its answer. Owner of an output row: the
    worker until it has answered.
    """

    def __init__(self, descriptor: int, layout: SlotLayout) -> None:
        """Map the block and close the descriptor."""
        try:
            block = mmap.mmap(descriptor, layout.size)
        finally:
            os.close(descriptor)
        self.inputs, *outputs = (_array(block, layout, p, o) for p, o in zip(layout.parts, layout.offsets, strict=False))
        self.outputs: tuple[npt.NDArray[Any], ...] = tuple(outputs)


def _array(block: mmap.mmap, layout: SlotLayout, part: OutputSpec, offset: int) -> npt.NDArray[Any]:
    count = layout.slots * layout.rows * math.prod(part.shape)
    flat = np.frombuffer(block, part.dtype, count, offset)
    return flat.reshape(layout.slots, layout.rows, *part.shape)
