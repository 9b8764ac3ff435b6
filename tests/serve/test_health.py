"""The last minute, with a clock that the test moves; and what the report makes of it."""

from __future__ import annotations

import pytest

from app.serve.health import Minute, Recent, report
from app.serve.memory_budget import MemoryBudget, Reservation
from pipelines.errors import Refused


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_minute_is_forgotten_in_halves() -> None:
    clock = Clock()
    recent = Recent(clock)
    recent.batch(4, 1.0)
    clock.now += 29
    assert recent.minute() == Minute(29, 1.0, 4, 4, None)
    clock.now += 2
    recent.batch(8, 3.0)
    assert (recent.minute().pictures, recent.minute().busy_s) == (12, 4.0)
    clock.now += 30
    assert (recent.minute().pictures, recent.minute().seconds) == (8, 30)
    clock.now += 61
    assert (recent.minute().pictures, recent.minute().batch_size) == (0, None)


def test_the_batch_size_is_that_of_the_middle_picture() -> None:
    recent = Recent(Clock())
    for size, count in ((1, 10), (2, 5), (16, 2)):
        for _ in range(count):
            recent.batch(size, 0.0)
    assert recent.minute().batch_size == 16  # 32 of 52 pictures rode in batches of 16


def test_the_wait_is_its_99th_percentile() -> None:
    recent = Recent(Clock())
    for k in range(1, 101):
        recent.waited(1e-3 * k)
    assert recent.minute().queue_wait_p99_s == pytest.approx(0.099, rel=1e-3)


@pytest.mark.parametrize(
    ("minute", "memory", "bad"),
    [
        (Minute(60, 48, 100, 32, 0.004), 0.5, {}),
        (Minute(60, 30, 100, 32, 0.004), 0.5, {"device_use": "time left"}),
        (Minute(60, 59, 100, 32, 0.004), 0.5, {"device_use": "add --workers"}),
        (Minute(60, 48, 100, 4, 0.004), 0.5, {"batch_size": "small"}),
        (Minute(60, 48, 100, 96, 0.004), 0.5, {"batch_size": "smaller --max-batch"}),
        (Minute(60, 48, 100, 32, 0.006), 0.5, {"queue_wait_p99_ms": "--max-wait-ms"}),
        (Minute(60, 48, 100, 32, 0.004), 0.9, {"device_memory": "nearly full"}),
        (Minute(60, 0, 0, None, None), 0.9, {"device_memory": "nearly full"}),
    ],
)
def test_each_figure_has_its_range_and_a_hint(minute: Minute, memory: float, bad: dict[str, str]) -> None:
    said = report(minute, memory)
    assert said["healthy"] == (not bad)
    for name, figure in said["figures"].items():
        assert (figure["ok"] is False) == (name in bad)
        assert bad.get(name, "") in figure["hint"]


def test_nothing_is_judged_by_too_little() -> None:
    said = report(Minute(60, 0.1, 3, 1, 0.5), None)
    assert said["healthy"]
    assert {figure["ok"] for figure in said["figures"].values()} == {None}


def test_the_room_is_one_for_all() -> None:
    room = MemoryBudget(100)
    one, other = Reservation(room), Reservation(room)
    one.take(50)
    one.take(100)  # larger than all, and counts for three quarters
    other.take(25)  # small ones still have room
    with pytest.raises(Refused) as refused:
        other.take(1)
    assert refused.value.why == "memory"
    other.take(-25)
    one.release()
    one.take(50)  # of a thread that is late
    assert room.held == 0
    other.take(60)
    third = Reservation(room)
    with third.taken(40), pytest.raises(Refused):
        third.take(1)
    with third.taken(30):
        third.release()  # the request is over while a thread still works for it
        assert room.held == 60
    third = Reservation(room)
    third.take(40)
    with pytest.raises(Refused):
        third.take(1)
    other.release()
    third.release()
    assert room.held == 0
