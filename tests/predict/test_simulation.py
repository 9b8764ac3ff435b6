"""The scheduler under load, on a clock that moves by events: what the formulas of queueing promise must come out."""

from __future__ import annotations

import random

import pytest

from tests.predict.simulation import profile, simulate

GPU = (0.008, 0.0005)
"""8 ms a batch and 0.5 ms a frame: taking what waits settles at 24 frames for 48 streams of 25 fps."""
CPU = (0.0003, 0.0097)
"""Nearly a straight line through nought."""


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
    outcome = simulate(96, profile(*GPU), 10, stage_s=stage_s)
    best = 32 / (0.008 + 32 * 0.0005) / (96 * 25)
    assert len(outcome.ages_s) / outcome.captured >= 0.95 * best
    assert max(outcome.ages_s) <= 0.050 + 0.024
    assert outcome.jain() >= 0.9


def test_overload_with_noise_does_not_fall_into_small_batches() -> None:
    outcome = simulate(96, profile(*GPU), 10, jitter_s=0.004, noise=_uneven)
    assert outcome.mean_batch() >= 24
    assert outcome.jain() >= 0.98


def test_on_a_cpu_small_batches_serve_as_many_cameras_as_fit() -> None:
    outcome = simulate(4, profile(*CPU), 10)
    assert outcome.goodput() >= 0.99
    assert outcome.mean_batch() < 2
    over = simulate(8, profile(*CPU), 10)
    assert over.goodput() >= 0.95 * (1 / 0.0097 / (8 * 25)) * 0.99
    assert over.jain() >= 0.98
