"""The wrap of the RTP timestamp."""

from __future__ import annotations

import random

import pytest

from pipelines.sources.rtp.timestamps import Unwrapped


@pytest.mark.parametrize("first", [0, 1, 2**31, 2**32 - 1, 2**32 - 5000])
def test_b_frames_over_many_wraps(first: int) -> None:
    clock, chance, truth = Unwrapped(), random.Random(first), first
    for _ in range(3000):
        assert clock.extend(truth % 2**32) == truth
        truth += chance.choice([3600, 10800, -7200, 2**30, 2**31 - 1, 0])


def test_back_before_the_first() -> None:
    clock = Unwrapped()
    assert [clock.extend(stamp) for stamp in (100, 2**32 - 100, 50)] == [100, -100, 50]


def test_a_new_numbering_goes_on_behind_the_highest() -> None:
    clock = Unwrapped()
    clock.restart(40)
    assert [clock.extend(t) for t in (1000, 1080, 1040)] == [1000, 1080, 1040]
    clock.restart(40)
    assert [clock.extend(t) for t in (2**32 - 10, 30, 10)] == [1120, 1160, 1140]
    clock.restart(40)
    clock.restart(40)
    assert clock.extend(7) == 1200
