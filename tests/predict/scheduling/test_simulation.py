"""The scheduler under load, on a clock that moves by events: the results of the queueing formulas must come out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from tests.predict.scheduling.simulation import profile, simulate

GPU = (0.008, 0.0005)
"""8 ms a batch and 0.5 ms a frame: taking the waiting frames settles at 24 for 48 streams of 25 fps."""
CPU = (0.0003, 0.0097)
"""Nearly a straight line through 0."""


def _uneven(chance: random.Random) -> float:
    return 1.6 if chance.random() < 0.03 else 1 + 0.1 * chance.random()


def test_48_streams_on_a_gpu_settle_at_the_batch_of_the_formula_and_keep_the_promise() -> None:
    outcome = simulate(48, profile(*GPU), 10)
    assert outcome.goodput() >= 0.99
    assert outcome.quantile(0.99) <= 0.050
    assert 16 <= outcome.mean_batch() <= 32
    # l(b) = a + beta b; N streams of period T: tau = a / (1 - N beta / T) = 20 ms, 24 frames arrive in it.
    assert outcome.mean_batch() == pytest.approx(24, abs=1)


def test_nearly_as_many_streams_as_any_scheduler_could_serve() -> None:
    # N_ideal = T / beta (1 - a / S) = 67; two batches within the budget allow N_max = 54.
    assert simulate(53, profile(*GPU), 10).goodput() >= 0.99


@pytest.mark.parametrize("stage_s", [0.0, 0.0001])
def test_twice_too_many_streams_get_equal_shares_of_all_that_the_device_can_do(stage_s: float) -> None:
    """Without any noise 3 periods are 5 batches for ever: no phase may be luckier than another."""
    outcome = simulate(96, profile(*GPU), 10, stage_s=stage_s)
    best = 32 / (0.008 + 32 * 0.0005) / (96 * 25)
    assert len(outcome.ages_s) / outcome.captured >= 0.95 * best
    assert max(outcome.ages_s) <= 0.050 + 0.024
    assert outcome.jain() >= 0.98


def test_overload_with_noise_does_not_fall_into_small_batches() -> None:
    outcome = simulate(96, profile(*GPU), 10, jitter_s=0.004, noise=_uneven)
    assert outcome.mean_batch() >= 24
    assert outcome.jain() >= 0.98


def test_batches_that_are_staged_beside_slow_ones_do_not_become_late_for_ever() -> None:
    """A forecast of the device's end that is not set right after each batch moves with every slow one: all frames were late."""
    outcome = simulate(96, profile(*GPU), 10, jitter_s=0.004, noise=_uneven, stage_s=0.0001)
    best = 32 / (1.07 * 0.024) / (96 * 25)
    assert outcome.goodput() >= 0.85 * best
    assert outcome.jain() >= 0.98


def test_on_a_cpu_small_batches_serve_as_many_cameras_as_fit() -> None:
    outcome = simulate(4, profile(*CPU), 10)
    assert outcome.goodput() >= 0.99
    assert outcome.mean_batch() < 2
    over = simulate(8, profile(*CPU), 10)
    assert over.goodput() >= 0.95 * (1 / 0.0097 / (8 * 25)) * 0.99
    assert over.jain() >= 0.98


def _reached(shape: Profile, most: int, **how: Any) -> int:
    """How many cameras of 25 fps are served so that 99 of 100 frames are shown in time."""
    return max((n for n in range(1, most + 1) if simulate(n, shape, 6, **how).goodput() >= 0.99), default=0)


def test_as_many_cameras_as_any_scheduler_could_serve_where_batching_gains_nothing() -> None:
    """l(b) = 10 ms * b: N_ideal = T / beta (1 - a / S) = 4, for a = 0."""
    shape = profile(0.0, 0.010)
    assert _reached(shape, 8) == 4
    for n in (5, 6, 7, 8):
        over = simulate(n, shape, 6)
        assert over.goodput() >= 0.98 * 4 / n
        assert over.jain() >= 0.98
        assert max(over.ages_s) <= 0.050 + 0.010


def test_a_device_that_becomes_slower_than_it_was_measured_costs_frames_not_promises() -> None:
    """Decoders share the cores: batches take 1.5 times as long as the idle table says. That is more than the device has, and
    two batches of 32 no longer fit into the budget."""
    outcome = simulate(48, profile(*GPU), 10, noise=lambda chance: 1.5)
    assert outcome.goodput() >= 0.85 * 32 / (1.5 * 0.024) / (48 * 25)
    assert outcome.quantile(0.99) <= 0.050
    assert outcome.jain() >= 0.98


def test_cameras_of_which_few_send_are_not_kept_waiting_for_each_other() -> None:
    outcome = simulate(3, profile(*GPU), 6)
    assert outcome.goodput() == 1
    assert outcome.quantile(0.99) <= 0.025


def test_two_places_serve_twice_as_many_streams() -> None:
    """6 ms a frame: 6.7 streams of 25 fps in one place, 13.3 in two."""
    line = (0.0003, 0.006)
    assert simulate(6, profile(*line), 10).goodput() >= 0.99
    both = SchedulerOptions(slots=3, parallel=2)
    assert simulate(12, profile(*line), 10, options=both).goodput() >= 0.99
    over = simulate(26, profile(*line), 10, options=both)
    assert len(over.ages_s) / over.captured >= 0.9 * 13.3 / 26
    assert over.quantile(0.99) <= 0.050 + profile(*line).median(max(over.sizes))
    assert over.jain() >= 0.98
