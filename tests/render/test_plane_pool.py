from __future__ import annotations

from collections.abc import Callable
from typing import Any

import av
import numpy as np
import pytest

from pipelines.frame import Picture, Plane
from pipelines.render.plane_pool import PlanePool, Planes


def address(planes: Planes) -> int:
    """The address as a number, which keeps no memory alive."""
    return int(planes[0].ctypes.data)


def test_planes_have_the_shapes_of_yuv420p_and_lie_behind_each_other() -> None:
    y, u, v = PlanePool().lease(6, 4)
    assert (y.shape, u.shape, v.shape) == ((4, 6), (2, 3), (2, 3))
    assert all(p.dtype == np.uint8 and p.flags.writeable and p.flags.c_contiguous for p in (y, u, v))
    y[:], u[:], v[:] = 1, 2, 3
    assert y.base is not None
    assert y.base.tolist() == [1] * 24 + [2] * 6 + [3] * 6


@pytest.mark.parametrize("size", [(3, 4), (4, 3), (0, 4), (4, -2)])
def test_odd_or_empty_sizes_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="even sides"):
        PlanePool().lease(*size)


def count_allocations(monkeypatch: pytest.MonkeyPatch) -> list[PlanePool]:
    """A list that gets one entry for every buffer that a pool allocates, kept or not."""
    grow, found = PlanePool._grow, list[PlanePool]()

    def counted(self: PlanePool) -> Plane:
        found.append(self)
        return grow(self)

    monkeypatch.setattr(PlanePool, "_grow", counted)
    return found


def test_after_warm_up_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = count_allocations(monkeypatch)
    pool = PlanePool()
    in_flight: list[Planes] = [pool.lease(64, 48) for _ in range(4)]
    for step in range(1000):
        in_flight[step % 4] = pool.lease(64, 48)
    assert len(allocated) == 5  # four in flight and the one that replaces the oldest before that is dropped


HOLDERS: dict[str, Callable[[Planes], Any]] = {
    "one plane": lambda p: p[2],
    "a slice of a plane": lambda p: p[0][1:3, ::-1],
    "a reshaped view": lambda p: p[0].reshape(-1)[:1],
    "a memoryview": lambda p: memoryview(p[1]),
    "a picture": lambda p: Picture(*p),
    "a turned view of a picture": lambda p: Picture(*p, rotation=90).upright()[1],
    "a dlpack capsule": lambda p: p[1].__dlpack__(),
    "a frame of PyAV": lambda p: av.VideoFrame.from_dlpack(p, format="yuv420p"),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS.keys())
def test_a_buffer_that_anything_refers_to_is_not_lent_again(hold: Callable[[Planes], Any]) -> None:
    pool = PlanePool()
    planes = pool.lease(64, 48)
    first = address(planes)
    held = hold(planes)
    del planes
    assert address(pool.lease(64, 48)) != first
    del held
    assert address(pool.lease(64, 48)) == first
    assert len(pool) == 2


def test_a_frame_of_pyav_keeps_its_content_while_the_pool_lends_on() -> None:
    pool = PlanePool()
    planes = pool.lease(64, 48)
    for plane in planes:
        plane[:] = 77
    held = av.VideoFrame.from_dlpack(planes, format="yuv420p")
    del planes
    for _ in range(4):
        for plane in pool.lease(64, 48):
            plane[:] = 0
    assert (held.to_ndarray() == 77).all()


def test_another_size_lets_the_old_buffers_go() -> None:
    pool = PlanePool()
    held = [pool.lease(64, 48) for _ in range(3)]
    small = pool.lease(32, 16)
    assert len(pool) == 1
    assert small[0].shape == (16, 32)
    assert all(planes[0].shape == (48, 64) for planes in held)


def test_beyond_its_capacity_buffers_are_lent_but_not_kept() -> None:
    pool = PlanePool(capacity=2)
    held = [pool.lease(8, 8) for _ in range(5)]
    assert len({address(planes) for planes in held}) == 5
    assert len(pool) == 2


def test_what_a_burst_needed_is_let_go_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = count_allocations(monkeypatch)
    pool = PlanePool()
    burst = [pool.lease(8, 8) for _ in range(40)]
    burst.clear()
    for _ in range(600):
        pool.lease(8, 8)
    assert len(pool) == 1
    assert len(allocated) == 40
