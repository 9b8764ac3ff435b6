"""Figures of the last minute, with a clock that the test moves; and the report about them."""

from __future__ import annotations

import pytest

from app.serve.health import LastMinute, MinuteFigures, report
from app.serve.memory_budget import MemoryBudget, Reservation
from pipelines.errors import Refused


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_minute_is_forgotten_in_halves() -> None:
    clock = Clock()
    last_minute = LastMinute(clock)
    last_minute.batch(4, 1.0)
    clock.now += 29
    assert last_minute.figures() == MinuteFigures(29, 1.0, 4, 4, None)
    clock.now += 2
    last_minute.batch(8, 3.0)
    assert (last_minute.figures().pictures, last_minute.figures().busy_s) == (12, 4.0)
    clock.now += 30
    assert (last_minute.figures().pictures, last_minute.figures().seconds) == (8, 30)
    clock.now += 61
    assert (last_minute.figures().pictures, last_minute.figures().batch_size) == (0, None)


def test_the_batch_size_is_that_of_the_middle_picture() -> None:
    last_minute = LastMinute(Clock())
    for size, count in ((1, 10), (2, 5), (16, 2)):
        for _ in range(count):
            last_minute.batch(size, 0.0)
    assert last_minute.figures().batch_size == 16  # 32 of 52 pictures were in batches of 16


def test_the_wait_is_its_99th_percentile() -> None:
    last_minute = LastMinute(Clock())
    for k in range(1, 101):
        last_minute.waited(1e-3 * k)
    assert last_minute.figures().queue_wait_p99_s == pytest.approx(0.099, rel=1e-3)


@pytest.mark.parametrize(
    ("minute", "memory", "bad"),
    [
        (MinuteFigures(60, 48, 100, 32, 0.004), 0.5, {}),
        (MinuteFigures(60, 30, 100, 32, 0.004), 0.5, {"device_use": "time left"}),
        (MinuteFigures(60, 59, 100, 32, 0.004), 0.5, {"device_use": "add --workers"}),
        (MinuteFigures(60, 48, 100, 4, 0.004), 0.5, {"batch_size": "small"}),
        (MinuteFigures(60, 48, 100, 96, 0.004), 0.5, {"batch_size": "smaller --max-batch"}),
        (MinuteFigures(60, 48, 100, 32, 0.006), 0.5, {"queue_wait_p99_ms": "--max-wait-ms"}),
        (MinuteFigures(60, 48, 100, 32, 0.004), 0.9, {"device_memory": "nearly full"}),
        (MinuteFigures(60, 0, 0, None, None), 0.9, {"device_memory": "nearly full"}),
    ],
)
def test_each_figure_has_its_range_and_a_hint(minute: MinuteFigures, memory: float, bad: dict[str, str]) -> None:
    said = report(minute, memory)
    assert said.healthy == (not bad)
    for name, figure in said.figures.items():
        assert (figure.ok is False) == (name in bad)
        assert bad.get(name, "") in figure.hint


def test_nothing_is_judged_by_too_little() -> None:
    said = report(MinuteFigures(60, 0.1, 3, 1, 0.5), None)
    assert said.healthy
    assert {figure.ok for figure in said.figures.values()} == {None}


def test_the_room_is_one_for_all() -> None:
    budget = MemoryBudget(100)
    one, other = Reservation(budget), Reservation(budget)
    one.take(50)
    one.take(100)  # more than the limit: it counts for three quarters
    other.take(25)  # small requests still get memory
    with pytest.raises(Refused) as refused:
        other.take(1)
    assert refused.value.why == "memory"
    other.take(-25)
    one.release()
    one.take(50)  # a thread that is late: its request is released
    assert budget.held == 0
    other.take(60)
    third = Reservation(budget)
    with third.taken(40), pytest.raises(Refused):
        third.take(1)
    with third.taken(30):
        third.release()  # the request is over while a thread still works for it
        assert budget.held == 60
    third = Reservation(budget)
    third.take(40)
    with pytest.raises(Refused):
        third.take(1)
    other.release()
    third.release()
    assert budget.held == 0
