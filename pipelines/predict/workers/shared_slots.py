"""Memory that a predictor and its worker process both map: the rows of every slot, and their answers.

It is a descriptor without a name (memfd), closed once both have mapped it: whoever dies, and however, the memory goes with
the last of the two, and nothing is left in /dev/shm.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ALIGNED = 64
"""Bytes: a cache line, and what vector loads like."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """`slots` times `rows` inputs of `shape`, uint8, and as many answers for `classes`, float32."""

    slots: int
    rows: int
    shape: tuple[int, ...]
    classes: int

    @property
    def inputs(self) -> int:
        """Bytes of all inputs."""
        size = self.slots * self.rows * math.prod(self.shape)
        return -(-size // ALIGNED) * ALIGNED

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return self.inputs + 4 * self.slots * self.rows * self.classes


def make() -> int:
    """The descriptor of a block without a size."""
    return os.memfd_create("watchline-slots")


class SharedSlots:
    """The mapped block as arrays: `inputs` (slots, rows, *shape), `outputs` (slots, rows, classes). A row is written by the
    predictor until its slot is started, and by nobody until it is answered; an answer by the worker before it says so."""

    def __init__(self, descriptor: int, layout: SlotLayout) -> None:
        """Closes the descriptor."""
        try:
            block = mmap.mmap(descriptor, layout.size)
        finally:
            os.close(descriptor)
        rows = (layout.slots, layout.rows)
        count = layout.slots * layout.rows
        flat = np.frombuffer(block, np.uint8, count * math.prod(layout.shape))
        self.inputs: npt.NDArray[np.uint8] = flat.reshape(*rows, *layout.shape)
        answers = np.frombuffer(block, np.float32, count * layout.classes, layout.inputs)
        self.outputs: npt.NDArray[np.float32] = answers.reshape(*rows, layout.classes)
