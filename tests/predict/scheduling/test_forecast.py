"""When the device should be free, with batches one by one and side by side: by hand."""

from __future__ import annotations

from pipelines.predict.scheduling.forecast import Forecast
from tests.predict.scheduling.simulation import profile

IDLE = float("-inf")


def forecast(parallel: int) -> Forecast:
    """10 ms a batch and 1 ms a frame."""
    return Forecast(profile(0.010, 0.001), parallel)


def ms(seconds: float) -> float:
    return round(1e3 * seconds, 6)


def test_one_by_one() -> None:
    device = forecast(1)
    assert (device.busy, device.free_s, ms(device.end_s(0.0, 2, 0.012))) == (False, IDLE, 12)
    device.taken(0.0, 2)
    assert (device.busy, ms(device.free_s), ms(device.end_s(0.005, 1, 0.011))) == (True, 12, 23)
    device.taken(0.005, 4)
    assert (device.running, ms(device.free_s)) == (2, 26)
    device.done(0.020)
    assert ms(device.free_s) == 34, "it was late: the next one began only then"
    device.done(0.030)
    assert (device.running, device.free_s) == (0, IDLE)


def test_side_by_side() -> None:
    device = forecast(2)
    device.taken(0.0, 2)
    assert (device.busy, device.free_s) == (False, IDLE), "the other place is free"
    device.taken(0.004, 10)
    assert (device.busy, ms(device.free_s)) == (True, 12), "the first of both ends first"
    device.taken(0.006, 5)
    assert (device.running, ms(device.free_s)) == (3, 24), "the third ends at 27, the second at 24"
    device.done(0.014)
    assert ms(device.free_s) == 24
    device.done(0.025)
    assert (device.busy, device.free_s) == (False, IDLE)
    device.done(0.029)
    assert device.running == 0


def test_what_is_staged_begins_when_its_place_is_free() -> None:
    device = forecast(2)
    for n in (10, 10, 5):
        device.taken(0.0, n)
    assert ms(device.free_s) == 20
    device.done(0.030)
    assert ms(device.free_s) == 20, "the second one of 10 should have ended"
    assert ms(device.end_s(0.031, 1, 0.011)) == 42, "but nothing begins in the past"
    device.taken(0.031, 1)
    device.done(0.032)
    assert ms(device.free_s) == 43, "the one of 1 begins now and ends before that of 5, at 45"


def test_staging_is_followed() -> None:
    device = forecast(2)
    for _ in range(100):
        device.staged(4, 0.008)
    assert round(1e3 * device.stage_s, 3) == 2
    device.taken(0.0, 5)
    device.taken(0.010, 5)
    assert round(1e3 * device.free_s, 3) == 25


def test_a_batch_that_did_not_get_there_is_the_newest() -> None:
    device = forecast(1)
    device.taken(0.0, 2)
    device.taken(0.005, 4)
    device.done(0.006, newest=True)
    assert (device.running, ms(device.free_s)) == (1, 12), "the first one still runs"
