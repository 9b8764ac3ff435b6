"""PlanePool: yuv420p planes that are used again, so that no frame allocates memory after the warm-up.

A copy into a new 1280x720 picture costs 0.87 ms, because the kernel maps and clears its pages; into a pooled one 0.06 ms.
"""

from __future__ import annotations

import sys

import numpy as np

from pipelines.frame import Plane

Planes = tuple[Plane, Plane, Plane]

_TRIM_EVERY = 256
"""Leases between two trims, which free the buffers that were idle since the last trim: 10 s at 25 frames a second."""


class PlanePool:
    """Lends planes of one size at a time. A buffer is idle again when the last reference to its planes is gone.

    Each buffer is one flat array that only the pool and the lent views know. Every view of the array holds a reference to
    the flat array itself, because numpy collapses chains of views. So do a `Picture` with such a view, and the capsule that
    `av.VideoFrame.from_dlpack` keeps while an encoder uses the frame. A reference count at its idle value therefore means
    that no view exists, and no view can appear later, because a view is made from a view. A bare address
    (`array.ctypes.data`) is not counted: code that hands one on must keep the array too.

    Thread: one, the overlay's. References may be dropped in any thread; a missed drop only makes a buffer look busy.
    """

    def __init__(self, capacity: int = 64) -> None:
        """capacity: the most buffers that are kept; further planes are lent, too, but are freed after use."""
        if capacity < 0:
            raise ValueError(f"capacity must not be negative, got {capacity}")
        self._capacity = capacity
        self._size = (0, 0)
        self._buffers: list[Plane] = []
        self._highest = 0
        self._leases = 0

    def __len__(self) -> int:
        """The number of kept buffers, lent or idle."""
        return len(self._buffers)

    def lease(self, width: int, height: int) -> Planes:
        """Writable planes y (height, width) and u, v (height/2, width/2) with undefined content.

        The three lie one behind the other without padding, in the layout of OpenCV's I420 and of raw yuv420p. A lease of
        another size frees all buffers of the size before.

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
        """The first idle buffer. First fit leaves the end of the list idle, so that it can be trimmed."""
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
        """Free the buffers that a burst (a slow disk, a big batch) needed: up to 64 pictures of 12 MB."""
        self._leases += 1
        if self._leases >= _TRIM_EVERY:
            del self._buffers[self._highest + 1 :]
            self._highest = self._leases = 0


def _references(buffers: list[Plane], index: int) -> int:
    return sys.getrefcount(buffers[index])


_IDLE = _references([np.empty(1, np.uint8)], 0)
"""The reference count of an idle buffer. Measured, because a call itself holds a number of references that differs between
Python versions."""


def _planes(flat: Plane, width: int, height: int) -> Planes:
    luma, chroma = width * height, width * height // 4
    half = (height // 2, width // 2)
    return (
        flat[:luma].reshape(height, width),
        flat[luma : luma + chroma].reshape(half),
        flat[luma + chroma :].reshape(half),
    )
