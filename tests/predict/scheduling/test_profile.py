"""The measured time of a batch: between the measured sizes, beyond them, and as the running system changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from pipelines.predict.measurement import measure
from pipelines.predict.scheduling.profile import Profile, Timing, measured_sizes
from pipelines.predict.scheduling.tuning import Tuning

pytestmark = pytest.mark.timeout(20)

ENOUGH = Tuning().ratios


def _table(**times: float) -> dict[int, Timing]:
    """b1=0.01 -> a batch of one takes 10 ms, at worst twice as long."""
    return {int(k[1:]): Timing(t, 2 * t) for k, t in times.items()}


def _line(b: int) -> float:
    return 0.010 + 0.001 * b


# The table.


def test_between_measured_sizes_time_is_interpolated() -> None:
    profile = Profile(_table(b1=0.010, b4=0.016, b8=0.032), 8)
    assert [round(1e3 * profile.median(b), 6) for b in range(1, 9)] == [10, 12, 14, 16, 20, 24, 28, 32]
    assert profile.p99(2) == pytest.approx(0.024)


def test_an_engine_that_pads_takes_as_long_as_for_the_next_size() -> None:
    profile = Profile(_table(b1=0.010, b4=0.016, b8=0.032), 8, pads=True)
    assert [round(1e3 * profile.median(b), 6) for b in range(1, 9)] == [10, 16, 16, 16, 32, 32, 32, 32]


@pytest.mark.parametrize("pads", [False, True])
def test_beyond_the_largest_measured_size_the_last_slope_goes_on(pads: bool) -> None:
    profile = Profile(_table(b1=0.010, b2=0.012, b4=0.020), 8, pads=pads)
    assert profile.median(8) == pytest.approx(0.036)


def test_of_one_measured_size_every_frame_costs_the_same() -> None:
    assert Profile(_table(b1=0.010), 8).median(8) == pytest.approx(0.080)


def test_a_table_that_falls_never_leads_to_less_than_the_smallest_time() -> None:
    profile = Profile(_table(b1=0.010, b2=0.005), 32)
    assert profile.median(32) == pytest.approx(0.010)


@pytest.mark.parametrize("table", [{}, _table(b2=0.01)])
def test_a_table_without_the_time_of_one_is_refused(table: Mapping[int, Timing]) -> None:
    with pytest.raises(ValueError, match="batch of 1"):
        Profile(table, 4)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ((0.010, 0.0202, 0.0404, 0.0808), 4),
        ((0.010, 0.0105, 0.011, 0.012), 8),
        ((0.010, 0.012, 0.016, 0.0335), 4),
        ((0.010, 0.012, 0.016, 0.0300), 8),
    ],
    ids=["a line through 0: only the handling counts", "a constant", "hardly better at 8", "better at 8"],
)
def test_the_best_batch_is_the_smallest_in_which_a_frame_costs_hardly_more(times: Sequence[float], best: int) -> None:
    table = {b: Timing(t, t) for b, t in zip((1, 2, 4, 8), times, strict=True)}
    assert Profile(table, 8).best_batch == best


def test_the_best_batch_is_none_that_may_not_run() -> None:
    assert Profile(_table(b1=0.010, b2=0.011, b4=0.012), 2).best_batch == 2


def test_people_are_shown_milliseconds() -> None:
    assert Profile(_table(b1=0.0101239, b2=0.02), 2).as_ms() == {"1": 10.124, "2": 20.0}


# The running system.


def test_a_few_batches_change_nothing_then_every_size_follows() -> None:
    profile = Profile(_table(b1=0.010, b8=0.080), 8)
    for k in range(ENOUGH - 1):
        profile.observe(1, 0.020, 0.04 * k)
    assert profile.median(1) == pytest.approx(0.010)
    assert profile.p99(1) == pytest.approx(0.020)
    profile.observe(1, 0.020, 0.04 * ENOUGH)
    assert [profile.median(b) for b in (1, 8)] == pytest.approx([0.020, 0.160])
    assert [profile.p99(b) for b in (1, 8)] == pytest.approx([0.020, 0.160])


def test_the_figures_follow_a_system_that_becomes_slower_and_recovers() -> None:
    profile = Profile({b: Timing(_line(b), _line(b)) for b in (1, 2, 4, 8)}, 8)
    for turn, factor in enumerate((1.0, 3.0, 1.0, 0.5)):
        for k in range(150):
            b = k % 8 + 1
            profile.observe(b, factor * _line(b), (150 * turn + k) * 0.02)
        assert [profile.median(b) for b in (1, 3, 8)] == pytest.approx([factor * _line(b) for b in (1, 3, 8)])
        assert profile.p99(4) == pytest.approx(factor * _line(4))


def test_one_slow_batch_in_fifty_is_in_the_99th_percentile_and_not_in_the_median() -> None:
    profile = Profile(_table(b1=0.010), 1)
    for k in range(150):
        profile.observe(1, 0.050 if k % 50 == 7 else 0.010, 0.02 * k)
    assert profile.median(1) == pytest.approx(0.010)
    assert profile.p99(1) == pytest.approx(0.050)


def test_a_batch_that_takes_no_time_is_no_division_by_zero() -> None:
    profile = Profile({1: Timing(0.0, 0.0)}, 4)
    for k in range(ENOUGH):
        profile.observe(1, 0.0001, 0.1 * k)
    assert profile.median(1) >= 0


def test_a_slow_moment_is_forgotten_although_hardly_anything_is_run_any_more() -> None:
    """Frames that would be late are dropped, and only run frames are measured: two a second of each blind stream."""
    profile = Profile(_table(b1=0.010), 1)
    for k in range(100):
        profile.observe(1, 0.300, 0.04 * k)
    assert profile.median(1) == pytest.approx(0.300)
    for k in range(5):
        profile.observe(1, 0.010, 4 + 0.5 * k)
    assert profile.median(1) == pytest.approx(0.010)


# Measuring.


class Machine:
    """Runs batches in the time that `shape` says and notes them."""

    def __init__(self, shape: Callable[[int], float] = _line) -> None:
        self.shape = shape
        self.runs: list[int] = []

    def __call__(self, b: int) -> float:
        self.runs.append(b)
        return self.shape(b)


def _measured(machine: Machine, max_batch: int = 32, **how: object) -> Profile:
    given: dict[str, object] = {"pads": False, "limit_s": 100.0, "keep_on": lambda: True, "warm": [], **how}
    return measure(machine, given.pop("warm"), max_batch, **given)  # type: ignore[arg-type]


def test_the_sizes_that_are_measured_end_with_the_largest_batch() -> None:
    assert measured_sizes(32) == [1, 2, 4, 8, 16, 32]
    assert measured_sizes(20) == [1, 2, 4, 8, 16, 20]
    assert measured_sizes(1) == [1]


def test_what_is_measured_is_what_the_engine_takes_warm() -> None:
    """The first run of every size is ten times slower: it must not count."""
    used: set[int] = set()

    def cold(b: int) -> float:
        first = b not in used
        used.add(b)
        return (10 if first else 1) * _line(b)

    profile = _measured(Machine(cold))
    assert sorted(profile.table) == [1, 2, 4, 8, 16, 32]
    assert [profile.median(b) for b in (1, 5, 32)] == pytest.approx([_line(b) for b in (1, 5, 32)])
    assert profile.p99(1) == pytest.approx(_line(1))


def test_every_size_that_a_padding_engine_runs_is_warmed_and_measured() -> None:
    machine = Machine()
    profile = _measured(machine, 7, pads=True, warm=[1, 2, 3, 4, 6, 8])
    assert sorted(profile.table) == [1, 2, 3, 4, 6, 7, 8]
    assert all(machine.runs.count(b) >= 3 for b in (1, 2, 3, 4, 6, 8))
    assert [profile.median(b) for b in (5, 7)] == pytest.approx([_line(6), _line(7)])


def test_the_time_for_measuring_is_limited_and_the_rest_is_extrapolated() -> None:
    machine = Machine(lambda b: 0.1 * b)
    profile = _measured(machine, limit_s=1.0)
    assert sum(0.1 * b for b in machine.runs) < 1.0 + 2 * 0.1 * max(machine.runs)
    assert max(profile.table) < 32
    assert profile.median(32) == pytest.approx(3.2)


def test_an_engine_slower_than_the_limit_is_measured_once_nevertheless() -> None:
    machine = Machine(lambda b: 9.0 * b)
    profile = _measured(machine, limit_s=4.0)
    assert set(machine.runs) == {1}
    assert len(machine.runs) <= 3
    assert profile.median(1) == pytest.approx(9.0)


def test_a_stop_ends_measuring() -> None:
    machine = Machine()
    profile = _measured(machine, keep_on=lambda: len(machine.runs) < 3)
    assert len(machine.runs) == 3
    assert profile.median(1) == pytest.approx(_line(1))


@pytest.mark.parametrize(("factor", "kept"), [(1.0, True), (1.2, True), (0.85, True), (1.3, False), (0.7, False)])
def test_figures_of_an_earlier_start_are_kept_if_the_smallest_size_agrees(factor: float, kept: bool) -> None:
    known = {b: Timing(factor * _line(b), factor * _line(b)) for b in measured_sizes(32)}
    machine = Machine()
    profile = _measured(machine, known=known)
    assert profile.median(32) == pytest.approx((factor if kept else 1.0) * _line(32))
    assert profile.median(1) == pytest.approx(_line(1)), "the smallest is measured every time"
    assert machine.runs.count(32) == (1 if kept else 15 if 15 * _line(32) < 0.15 else machine.runs.count(32))
    assert machine.runs[:6] == measured_sizes(32), "each is warmed before any is measured"


def test_a_slow_moment_meets_all_sizes() -> None:
    """A shape in which a batch of two took no longer than one would make every batch look worth it."""
    began = 12  # each was warmed and measured once

    def shape(b: int) -> float:
        return (3 if began <= len(machine.runs) < began + 12 else 1) * _line(b)

    machine = Machine(shape)
    profile = _measured(machine)
    assert [profile.median(b) for b in (1, 2, 4)] == pytest.approx([_line(b) for b in (1, 2, 4)])


def test_a_size_that_no_earlier_start_knows_is_measured() -> None:
    machine = Machine()
    profile = _measured(machine, known={1: Timing(_line(1), _line(1)), 2: Timing(0.9, 0.9)})
    assert profile.median(2) == pytest.approx(0.9)
    assert profile.median(4) == pytest.approx(_line(4))
