"""DynamicBatchScheduler, decision by decision, on a clock that only the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from pipelines.errors import Dropped
from pipelines.frame import NOTHING, Prediction, Region
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.scheduling.profile import Profile
from pipelines.predict.scheduling.queues import Part
from pipelines.predict.scheduling.scheduler import DynamicBatchScheduler
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.predict.scheduling.tuning import Tuning
from tests.predict.fakes import picture
from tests.predict.scheduling.simulation import ManualClock, frame, profile

pytestmark = pytest.mark.timeout(20)
WAIT_S = 10
TUNING = Tuning()
AFTER_S, BLIND_S, LANE_AHEAD = TUNING.after_s, TUNING.blind_s, TUNING.lane_ahead
FILL_WAIT_S, GRACE_S, STARVED_S, WAKE_S = TUNING.fill_wait_s, TUNING.grace_s, TUNING.starved_s, TUNING.wake_s
LINE = profile(0.0, 0.010, 8)
"""10 ms a frame and nothing a batch: the shape of a CPU."""
GPU = profile(0.008, 0.0005)
CAMERAS_AND_FILES = profile(0.004, 0.005)
PROBE = ProbeEngine(0.010, 0.0005).known_profile(32)
MS = 1e-3


class House:
    """A scheduler with its streams, and batches that end when the test says so."""

    def __init__(self, shape: Profile = LINE, live: str = "", files: str = "", **options: object) -> None:
        self.clock = ManualClock()
        self.scheduler = DynamicBatchScheduler(shape, SchedulerOptions(**options), self.clock)  # type: ignore[arg-type]
        self.batches: list[list[Part]] = []
        self._counts: dict[str, int] = {}
        for name in live:
            self.scheduler.open(name, live=True)
        for name in files:
            self.scheduler.open(name, live=False)

    def submit(self, stream: str, arrived_s: float | None = None) -> Future[Prediction]:
        """A frame with a picture, that arrived now or at another time."""
        self._counts[stream] = self._counts.get(stream, -1) + 1
        one = frame(stream, self._counts[stream], self.clock.now if arrived_s is None else arrived_s)
        one.picture = picture(128)
        return self.scheduler.submit(one)

    def poll(self) -> str:
        """The streams of the batch that is to run now, joined; "" for none."""
        batch = self.scheduler.poll()
        if batch:
            self.batches.append(batch)
        return "".join(e.frame.stream for e in batch)

    def end(self, seconds: float = 0.0, *, after_s: float = AFTER_S, finish: bool = True) -> list[Part]:
        """The oldest running batch ends, and its lanes have shown the frames `after_s` later."""
        self.clock.now += seconds
        batch = self.batches.pop(0)
        self.scheduler.done()
        for entry in batch:
            entry.frame.trace.inferred_s = self.clock.now
            if finish:
                self.finish(entry, after_s)
        return batch

    def finish(self, entry: Part, after_s: float = AFTER_S) -> None:
        """The lane has shown the frame."""
        trace = entry.frame.trace
        assert trace.inferred_s is not None
        trace.shown_s = trace.inferred_s + after_s
        self.scheduler.finish(entry.frame)

    def show_one_of_each(self, streams: str) -> None:
        """Every stream has shown a frame just now: none is blind."""
        for name in streams:
            self.submit(name)
        while self.poll():
            self.end()

    @property
    def wake_s(self) -> float | None:
        """When the scheduler would look again, counted from now."""
        wake_s = self.scheduler.decide().wake_s
        return None if wake_s is None else wake_s - self.clock.now


def _cause(future: Future[Prediction]) -> str | None:
    error = future.exception(0) if future.done() else None
    return error.cause if isinstance(error, Dropped) else None


# Live streams: dropped frames.


def test_the_newest_frame_of_a_camera_wins_and_the_one_that_it_replaces_is_overload() -> None:
    house = House(live="a")
    futures = [house.submit("a") for _ in range(4)]
    assert house.poll() == "a"
    assert [_cause(f) for f in futures] == ["overload"] * 3 + [None]
    assert house.batches[0][0].frame.index == 3
    assert futures[3].running()


def test_a_frame_that_is_dropped_lets_its_picture_go_at_once() -> None:
    house = House(live="a")
    old = frame("a", 0, house.clock.now)
    old.picture = picture(7)
    house.scheduler.submit(old)
    house.submit("a")
    assert old.picture is NOTHING


@pytest.mark.parametrize(("age_ms", "taken"), [(34.9, True), (35.1, False)])
def test_a_frame_that_cannot_meet_its_deadline_even_alone_is_dropped_before_any_work(age_ms: float, taken: bool) -> None:
    """Budget 50 ms; a batch of one takes 10, render and sinks 5."""
    house = House(live="a")
    house.show_one_of_each("a")
    future = house.submit("a")
    house.clock.now += age_ms * MS
    assert house.poll() == ("a" if taken else "")
    assert _cause(future) == (None if taken else "deadline")


def test_what_comes_after_the_engine_is_what_the_stream_was_seen_to_need() -> None:
    house = House(live="a")
    house.submit("a")
    assert house.poll() == "a"
    house.end(after_s=0.025)
    future = house.submit("a")
    house.clock.now += 16 * MS
    assert house.poll() == ""
    assert _cause(future) == "deadline"


@pytest.mark.parametrize(("ago_s", "taken"), [(BLIND_S - 0.01, False), (BLIND_S + 0.01, True)])
def test_better_late_than_blind(ago_s: float, taken: bool) -> None:
    house = House(live="a")
    house.show_one_of_each("a")
    house.clock.now += ago_s + AFTER_S
    future = house.submit("a", arrived_s=house.clock.now - 0.2)
    assert house.poll() == ("a" if taken else "")
    assert _cause(future) == (None if taken else "deadline")


def test_a_camera_that_was_blind_is_judged_by_what_it_needs_now() -> None:
    """Its first frames waited for the encoder to open; no frame that is shown after them needs so long."""
    house = House(live="a")
    shown = []
    for _ in range(LANE_AHEAD):
        house.submit("a")
        house.poll()
        shown += house.end(finish=False)
    house.clock.now += 0.060
    for entry in shown:
        house.finish(entry, after_s=0.060)
    assert _cause(_polled(house)) == "deadline"
    house.clock.now += BLIND_S
    assert _cause(_polled(house)) is None
    house.end()
    house.clock.now += 0.040
    assert _cause(_polled(house)) is None


def _polled(house: House) -> Future[Prediction]:
    future = house.submit("a")
    house.poll()
    return future


def test_the_first_frame_of_a_camera_is_shown_however_late() -> None:
    house = House(live="a")
    house.submit("a", arrived_s=house.clock.now - 3)
    assert house.poll() == "a"


def test_a_blind_cameras_late_frame_makes_no_other_camera_wait() -> None:
    house = House(live="abc")
    house.submit("a", arrived_s=house.clock.now - 3)
    house.submit("b")
    house.submit("c")
    assert sorted(house.poll()) == ["a", "b", "c"]


def test_a_device_that_takes_no_time_is_as_good_as_any() -> None:
    house = House(ProbeEngine().known_profile(32), live="abc")
    house.scheduler.staged(1, 0.020)
    for name in "abc":
        house.submit(name)
        house.clock.now += 0.010
    assert sorted(house.poll()) == ["a", "b", "c"]


def test_a_camera_whose_first_frame_is_still_on_its_way_is_not_blind() -> None:
    house = House(live="a")
    house.submit("a")
    assert house.poll() == "a"
    house.end(0.6, finish=False)
    future = house.submit("a", arrived_s=house.clock.now - 0.2)
    assert house.poll() == ""
    assert _cause(future) == "deadline"


# Live streams: the order of service, and the size of batches.


def test_a_batch_is_as_large_as_the_earliest_deadline_allows() -> None:
    """A frame of 22 ms has 23 left for 10 ms a frame: a batch of two."""
    house = House(live="abcd")
    house.show_one_of_each("abcd")
    house.clock.now += 0.1
    for name, age_ms in zip("abcd", (22, 0, 0, 0), strict=True):
        house.submit(name, house.clock.now - age_ms * MS)
    assert house.poll() == "ab"
    house.end(20 * MS)
    assert house.poll() == "cd"


def test_the_largest_batch_is_never_exceeded() -> None:
    house = House(GPU, live="abcdefgh", max_batch=3)
    for name in "abcdefgh":
        house.submit(name)
    assert len(house.poll()) == 3


def test_the_camera_that_was_served_longest_ago_goes_first_then_the_oldest_frame() -> None:
    house = House(live="abc", max_batch=1, budget_s=1.0)
    served = ""
    house.submit("b")
    house.clock.now += 1 * MS
    for name in "ac":
        house.submit(name)
    for _ in range(9):
        served += house.poll()
        house.end(10 * MS)
        # A served stream has the first new frame: that must not help it.
        house.submit(served[-1])
    assert served == "bac" * 3


def test_the_camera_that_was_served_less_goes_first_even_if_it_was_served_last() -> None:
    house = House(live="ab", max_batch=1, budget_s=1.0)
    for name in "aaab":
        house.submit(name)
        assert house.poll() == name
        house.end(10 * MS)
    house.submit("a")
    house.submit("b")
    assert house.poll() == "b"


def test_under_overload_a_tight_frame_is_given_up_for_a_batch_that_is_faster_a_frame() -> None:
    """8 streams of 25 fps need 200 frames a second; one alone takes 21 ms (47 a second), seven 27 (259)."""
    house = House(profile(0.020, 0.001), live="abcdefgh")
    for _ in range(20):
        for name in "abcdefgh":
            house.submit(name)
        while house.poll():
            house.end()
        house.clock.now += 40 * MS
    house.submit("a", arrived_s=house.clock.now - 23.5 * MS)
    for name in "bcdefgh":
        house.submit(name)
    assert house.poll() == "bcdefgh"


def test_where_time_is_a_line_through_zero_no_frame_is_given_up() -> None:
    house = House(live="abcdefgh")
    for _ in range(20):
        for name in "abcdefgh":
            house.submit(name)
        while house.poll():
            house.end()
        house.clock.now += 40 * MS
    house.submit("a", arrived_s=house.clock.now - 30 * MS)
    for name in "bcdefgh":
        house.submit(name)
    assert house.poll() == "a"


def test_a_lane_that_is_behind_gets_no_further_frame_until_it_has_shown_one() -> None:
    house = House(live="a")
    taken: list[Part] = []
    for _ in range(LANE_AHEAD):
        house.submit("a")
        assert house.poll() == "a"
        taken += house.end(10 * MS, finish=False)
    waiting = house.submit("a")
    assert house.poll() == ""
    newer = house.submit("a")
    assert _cause(waiting) == "overload"
    assert house.poll() == ""
    house.finish(taken[0])
    assert house.poll() == "a"
    assert newer.running()


def test_a_live_batch_is_not_bound_while_another_runs_where_staging_is_nothing() -> None:
    house = House(live="ab")
    house.submit("a")
    assert house.poll() == "a"
    house.submit("b")
    assert house.poll() == ""
    house.end(10 * MS)
    assert house.poll() == "b"


def test_a_live_batch_is_staged_while_the_last_one_ends_not_before() -> None:
    house = House(live="ab")
    for _ in range(100):
        house.scheduler.staged(1, 2 * MS)
    house.submit("a")
    assert house.poll() == "a"
    house.submit("b")
    assert house.poll() == ""
    # The batch ends after 2 ms of staging and 10 of work; the next one's staging takes 2 ms, waking up 1.
    assert house.wake_s == pytest.approx(0.010 - WAKE_S, abs=1e-5)
    house.clock.now += house.wake_s
    assert house.poll() == "b"
    house.submit("a")
    assert house.poll() == "", "all slots are taken"


def test_a_batch_that_ends_late_moves_the_forecast_of_the_next() -> None:
    """a ends 6 ms after its time; b, staged meanwhile, begins only then: c's staging begins when b ends, 10 ms later."""
    house = House(live="abc")
    for _ in range(100):
        house.scheduler.staged(1, 2 * MS)
    house.submit("a")
    assert house.poll() == "a"
    house.clock.now += 9.5 * MS
    house.submit("b")
    assert house.poll() == "b"
    house.end(8.5 * MS)
    house.submit("c")
    assert house.poll() == ""
    assert house.wake_s == pytest.approx(0.010 - 0.002 - WAKE_S, abs=1e-5)


# When waiting is free.


def _learn(house: House, offsets_ms: dict[str, float], period_s: float = 0.040) -> None:
    """A second of frames of every stream, each at its offset within a period; now another period begins."""
    start = house.clock.now
    for k in range(25):
        for name, offset_ms in offsets_ms.items():
            house.clock.now = start + k * period_s + offset_ms * MS
            house.submit(name)
    assert sorted(house.poll()) == sorted(offsets_ms)
    house.end(9 * MS)
    house.clock.now = start + 25 * period_s


def test_it_waits_for_the_next_camera_where_that_saves_more_than_it_costs() -> None:
    """A batch of two takes 9 ms, two of one 17: 5 ms for a frame that is expected in 3, and 2 of grace, are a gain."""
    house = House(GPU, live="ab")
    _learn(house, {"a": 0, "b": 3})
    house.submit("a")
    assert house.poll() == ""
    assert house.wake_s == pytest.approx(0.003 + GRACE_S)
    house.clock.now += 3 * MS
    house.submit("b")
    assert house.poll() == "ab"


def test_it_gives_up_a_camera_that_does_not_come() -> None:
    house = House(GPU, live="ab")
    _learn(house, {"a": 0, "b": 3})
    house.submit("a")
    wake_s = house.wake_s
    assert wake_s is not None
    house.clock.now += wake_s + 1e-6
    assert house.poll() == "a"


@pytest.mark.parametrize(
    ("shape", "offset_ms", "budget_s"),
    [(GPU, 6.1, 0.050), (LINE, 1, 0.050), (GPU, 3, 0.037)],
    ids=["longer than it saves", "nothing to save", "half the budget is over"],
)
def test_it_does_not_wait_where_waiting_is_not_free(shape: Profile, offset_ms: float, budget_s: float) -> None:
    house = House(shape, live="ab", budget_s=budget_s)
    _learn(house, {"a": 0, "b": offset_ms})
    house.submit("a")
    assert house.poll() == "a"


def test_it_does_not_wait_for_a_camera_that_has_missed_a_whole_period() -> None:
    house = House(GPU, live="ab")
    _learn(house, {"a": 0, "b": 3})
    house.clock.now += 2 * 0.040
    house.submit("a")
    assert house.poll() == "a"


def test_it_does_not_wait_for_a_camera_that_is_new_or_closed() -> None:
    house = House(GPU, live="ab")
    house.submit("a")
    assert house.poll() == "a", "b has never sent a frame"
    house = House(GPU, live="ab")
    _learn(house, {"a": 0, "b": 3})
    house.scheduler.close("b")
    house.submit("a")
    assert house.poll() == "a"


# --max-wait-ms: the classic policy.


def test_a_plain_wait_ends_with_a_full_batch_or_after_its_time() -> None:
    house = House(LINE, live="abc", max_wait_s=0.015, max_batch=2)
    house.submit("a")
    assert house.poll() == ""
    assert house.wake_s == pytest.approx(0.015)
    house.clock.now += 5 * MS
    house.submit("b")
    assert house.poll() == "ab"
    house.end(10 * MS)
    house.submit("c")
    house.clock.now += 15.001 * MS
    assert house.poll() == "c"


def test_two_cameras_with_a_frame_each_never_wait_for_a_batch_of_four() -> None:
    house = House(GPU, live="ab", max_wait_s=10.0, max_batch=4)
    house.submit("a")
    assert house.poll() == ""
    house.submit("b")
    assert house.poll() == "ab"


def test_a_plain_wait_is_not_for_a_camera_that_has_ended() -> None:
    house = House(GPU, live="ab", max_wait_s=10.0)
    house.submit("a")
    assert house.poll() == ""
    house.scheduler.close("b")
    assert house.poll() == "a"


def test_a_plain_wait_is_not_for_a_camera_whose_lane_is_behind() -> None:
    house = House(GPU, live="ab", max_wait_s=10.0)
    for _ in range(LANE_AHEAD):
        house.submit("a")
        house.submit("b")
        assert house.poll() == "ab"
        a, _ = house.end(9 * MS, finish=False)
        house.finish(a)
    house.submit("a")
    assert house.poll() == "a"


# Files.


def _run_out(house: House) -> list[int]:
    """The sizes of all batches that run now, one after the other."""
    sizes = []
    while batch := house.poll():
        sizes.append(len(batch))
        house.end()
    return sizes


def test_files_fill_to_the_best_batch_of_the_profile() -> None:
    """The probe's shape, 10 ms and 0.5 ms a frame: the largest is the best, 100 frames are 32 + 32 + 32 + 4."""
    house = House(PROBE, files="f")
    for _ in range(100):
        house.submit("f")
    assert _run_out(house) == [32, 32, 32]
    house.scheduler.close("f")
    assert _run_out(house) == [4]
    assert House(LINE, files="f").scheduler.fill == 4


def test_a_file_loses_no_frame_and_keeps_their_order_however_late() -> None:
    house = House(PROBE, files="f", max_batch=4)
    futures = [house.submit("f", arrived_s=house.clock.now - 100) for _ in range(8)]
    assert (house.poll(), house.poll()) == ("ffff", "ffff")
    assert [e.frame.index for batch in house.batches for e in batch] == list(range(8))
    assert all(f.running() for f in futures)


def test_two_file_batches_may_be_staged_or_running_and_no_more() -> None:
    house = House(PROBE, files="f", max_batch=2, slots=2)
    for _ in range(6):
        house.submit("f")
    assert [house.poll() for _ in range(3)] == ["ff", "ff", ""]
    house.end()
    assert house.poll() == "ff"


def test_a_file_batch_that_does_not_fill_runs_after_a_while() -> None:
    house = House(PROBE, files="f", max_batch=4)
    house.submit("f")
    house.clock.now += 0.1
    house.submit("f")
    assert house.poll() == ""
    assert house.wake_s == pytest.approx(FILL_WAIT_S - 0.1)
    house.clock.now += FILL_WAIT_S - 0.1 + 1e-6
    assert house.poll() == "ff"


def test_a_file_batch_does_not_wait_for_frames_that_cannot_come() -> None:
    """Room for 12 frames: one ran alone, eight in two full batches, all in the lane's hands. The last three have no company."""
    house = House(PROBE, files="f", max_batch=4, slots=1)
    house.submit("f")
    house.clock.now += FILL_WAIT_S + 1e-6
    assert house.poll() == "f"
    house.end(finish=False)
    for _ in range(11):
        house.submit("f")
    for expected in ("ffff", "ffff", "fff"):
        assert house.poll() == expected
        house.end(finish=False)


def test_a_plain_wait_is_not_for_files() -> None:
    """Case C44: they have no deadline, and are not to run in the pieces in which a decoder hands them over."""
    house = House(PROBE, files="f", max_batch=4, max_wait_s=0.005)
    house.submit("f")
    house.clock.now += 5.001 * MS
    assert house.poll() == ""
    for _ in range(3):
        house.submit("f")
    assert house.poll() == "ffff"


def test_files_share_the_device_by_the_age_of_their_frames() -> None:
    house = House(PROBE, files="fg", max_batch=4)
    for name in "fgfgffgg":
        house.submit(name)
        house.clock.now += 1 * MS
    assert (house.poll(), house.poll()) == ("fgfg", "ffgg")


# Files beside cameras.


def test_live_before_files() -> None:
    house = House(CAMERAS_AND_FILES, live="a", files="f")
    for _ in range(20):
        house.submit("f")
    house.submit("a")
    assert house.poll() == "a"
    house.end(9 * MS)
    assert set(house.poll()) == {"f"}


def test_beside_a_camera_file_batches_are_so_short_that_its_frame_is_in_time() -> None:
    """Alone 18 of 94 ms are best. Beside a camera with a frame due at any time there is room for 5 of 29 ms: then
    9 for the camera's frame and 5 for its lane are within 90 % of the budget."""
    alone = House(CAMERAS_AND_FILES, files="f")
    beside = House(CAMERAS_AND_FILES, files="f", live="a")
    for house in (alone, beside):
        for _ in range(20):
            house.submit("f")
    assert len(alone.poll()) == 18
    assert len(beside.poll()) == 5
    arrived_s = beside.clock.now
    future = beside.submit("a")
    assert beside.poll() == ""
    beside.end(29 * MS)
    assert beside.poll() == "a"
    assert not future.done()
    beside.end(9 * MS)
    assert beside.clock.now + AFTER_S - arrived_s <= 0.050


def test_a_file_batch_may_be_longer_while_no_cameras_frame_is_expected() -> None:
    house = House(CAMERAS_AND_FILES, live="a", files="f")
    _learn(house, {"a": 0}, period_s=1.0)
    house.clock.now -= 0.9
    for _ in range(20):
        house.submit("f")
    assert len(house.poll()) == 18


def test_a_camera_that_has_missed_a_whole_period_is_not_expected_at_any_moment() -> None:
    house = House(CAMERAS_AND_FILES, live="ab", files="f")
    _learn(house, {"a": 0, "b": 100}, period_s=1.0)
    house.clock.now += 0.1
    for _ in range(2):
        house.submit("b")
        assert house.poll() == "b"
        house.end(9 * MS)
        house.clock.now += 1.0 - 9 * MS
    house.clock.now -= 0.9
    for _ in range(20):
        house.submit("f")
    assert len(house.poll()) == 18


def test_files_have_the_device_to_themselves_when_the_camera_has_ended() -> None:
    house = House(CAMERAS_AND_FILES, live="a", files="f")
    house.scheduler.close("a")
    for _ in range(20):
        house.submit("f")
    assert len(house.poll()) == 18


def test_a_file_beside_cameras_that_leave_no_room_still_ends_some_day() -> None:
    house = House(CAMERAS_AND_FILES, live="a", files="f", budget_s=0.015)
    for _ in range(20):
        house.submit("f")
    assert house.poll() == ""
    assert house.wake_s == pytest.approx(STARVED_S)
    house.clock.now += STARVED_S + 1e-6
    assert house.poll() == "f"


# The ends: stopping, failing, cancelling.


def test_stop_cancels_what_waits_and_takes_nothing_more() -> None:
    house = House(PROBE, live="a", files="f")
    waiting = [house.submit("a"), house.submit("f")]
    house.scheduler.stop()
    assert all(f.cancelled() for f in waiting)
    assert house.scheduler.take() is None
    assert house.submit("a").cancelled()
    assert house.submit("f").cancelled()


def test_frames_of_a_failed_batch_run_alone_and_before_anything_else() -> None:
    house = House(GPU, live="ab", files="f")
    house.submit("a")
    house.submit("b")
    assert house.poll() == "ab"
    failed = house.batches.pop()
    house.scheduler.done()
    house.scheduler.retry(failed)
    house.submit("f")
    house.submit("a")
    assert [house.poll(), house.poll()] == ["a", "b"]
    assert [batch[0] for batch in house.batches] == failed


def test_frames_of_a_failed_batch_that_nobody_will_run_again_end_as_shutdown() -> None:
    house = House(GPU, live="ab")
    futures = [house.submit("a"), house.submit("b")]
    assert house.poll() == "ab"
    a, b = house.batches.pop()
    house.scheduler.retry([a])
    house.scheduler.stop()
    house.scheduler.retry([b])
    assert [_cause(f) for f in futures] == ["shutdown", "shutdown"]


@pytest.mark.parametrize("kind", ["live", "file"])
def test_a_future_that_its_submitter_cancels_costs_no_work_and_no_other_frame(kind: str) -> None:
    house = House(PROBE, live="a" if kind == "live" else "", files="f", max_batch=2)
    cancelled = house.submit("a") if kind == "live" else house.submit("f")
    assert cancelled.cancel()
    others = [house.submit("f"), house.submit("f")]
    house.scheduler.close("f")
    assert sum(_run_out(house)) == 2
    assert all(f.running() for f in others)


def test_a_cancelled_frame_of_a_camera_is_replaced_or_too_late_like_any_other() -> None:
    house = House(live="ab")
    house.show_one_of_each("ab")
    replaced, late = house.submit("a"), house.submit("b")
    assert replaced.cancel()
    assert late.cancel()
    house.clock.now += 0.2
    house.submit("a")
    assert house.poll() == "a"


# With threads: they wait for each other, never for time.


@contextmanager
def _beside(house: House, work: Callable[[], object]) -> Iterator[threading.Event]:
    """`work` in a thread; the event says when it has returned. It ends with the `with`, also where the test fails."""
    done = threading.Event()
    thread = threading.Thread(target=lambda: (work(), done.set()))
    thread.start()
    try:
        yield done
    finally:
        house.scheduler.stop()
        thread.join()


class _Seen(threading.Condition):
    """A condition that tells when somebody waits on it."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__(lock)
        self.waited = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.set()
        return super().wait(timeout)


def _watched(house: House) -> tuple[_Seen, _Seen]:
    """The conditions "room" of the file f, and "work"."""
    s = house.scheduler
    room, work = _Seen(s._lock), _Seen(s._lock)  # type: ignore[arg-type]
    s._queues.rooms["f"], s._work = room, work
    return room, work


@pytest.mark.parametrize("how", ["finish", "stop", "cancel"])
def test_a_file_that_has_enough_on_its_way_waits_in_submit(how: str) -> None:
    house = House(PROBE, files="f", max_batch=2, slots=1)
    room, _ = _watched(house)
    first = [house.submit("f") for _ in range(6)]  # one batch staged, one filling, one in the lane's hands
    last: list[Future[Prediction]] = []
    with _beside(house, lambda: last.append(house.submit("f"))) as done:
        assert room.waited.wait(WAIT_S)
        assert not done.is_set()
        if how == "finish":
            assert house.poll() == "ff"
            (entry, _) = house.end(finish=False)
            assert not done.is_set(), "the lane has not finished with any"
            house.finish(entry)
        elif how == "stop":
            house.scheduler.stop()
        else:
            first[0].cancel()
            assert house.poll() == "f"
        assert done.wait(WAIT_S)
        assert last[0].cancelled() == (how == "stop")


def test_a_camera_never_waits_in_submit() -> None:
    house = House(GPU, live="a")
    for _ in range(1000):
        house.submit("a")


@pytest.mark.parametrize("how", ["submit", "close", "stop"])
def test_take_waits_for_a_reason_to_run(how: str) -> None:
    house = House(GPU, live="a", files="f", max_wait_s=1000.0)
    _, work = _watched(house)
    if how == "close":
        house.submit("f")
    taken: list[list[Part] | None] = []
    with _beside(house, lambda: taken.append(house.scheduler.take())) as done:
        assert work.waited.wait(WAIT_S)
        assert not done.is_set()
        if how == "submit":
            house.submit("a")
        elif how == "close":
            house.scheduler.close("a")
            house.scheduler.close("f")
        else:
            house.scheduler.stop()
        assert done.wait(WAIT_S)
    names = None if taken[0] is None else [e.frame.stream for e in taken[0]]
    assert names == {"submit": ["a"], "close": ["f"], "stop": None}[how]


# Streams that have ended.


def test_a_file_that_has_ended_is_forgotten_with_its_last_frame() -> None:
    house = House(files="ab")
    for _ in range(2):
        house.submit("a")
    house.submit("b")
    house.scheduler.close("a")
    assert house.scheduler.on_its_way("a") == 2
    house.clock.now += FILL_WAIT_S + 1
    house.poll()
    house.end(0.01)
    assert sorted(house.scheduler._queues.streams) == ["b"]
    assert house.scheduler.on_its_way("a") == house.scheduler.waiting("a") == 0
    house.scheduler.close("b")
    assert not house.scheduler._queues.streams
    assert not house.scheduler._queues.rooms


def test_a_camera_that_is_closed_may_still_hand_in_a_frame() -> None:
    """It was moved to another worker while its decoder was on the way to this one."""
    house = House(live="a")
    house.scheduler.close("a")
    house.submit("a")
    assert house.poll() == "a"


def test_a_camera_that_was_closed_is_forgotten_with_its_last_frame() -> None:
    """Cameras come and go at run time: nothing of one that was removed is kept."""
    house = House(live="ab")
    house.submit("a")
    house.poll()
    house.submit("a")
    house.scheduler.close("a")
    assert house.scheduler.on_its_way("a") == 2
    house.end(0.01)
    house.poll()
    house.end(0.01)
    assert sorted(house.scheduler._queues.streams) == sorted(house.scheduler._queues.rooms) == ["b"]


@pytest.mark.parametrize("how", ["late", "cancelled"])
def test_a_closed_camera_is_forgotten_too_if_its_last_frame_is_not_run(how: str) -> None:
    house = House(live="a")
    house.show_one_of_each("a")
    future = house.submit("a")
    house.scheduler.close("a")
    if how == "late":
        house.clock.now += 0.040
    else:
        future.cancel()
    assert house.poll() == ""
    assert not house.scheduler._queues.streams


def test_a_name_that_is_opened_again_starts_afresh_and_its_old_frames_are_still_served() -> None:
    house = House(live="a")
    house.submit("a")
    house.poll()
    house.end(after_s=0.020)
    house.submit("a")
    house.poll()
    waiting = house.submit("a")
    house.scheduler.close("a")
    house.scheduler.open("a", live=True)
    fresh = house.scheduler._queues.streams["a"]
    assert (fresh.after_s, fresh.period_s, fresh.served) == (AFTER_S, None, 0.0)
    house.end(0.01)
    assert house.poll() == "a"
    assert waiting.running()
    house.end(0.01)
    assert house.scheduler.on_its_way("a") == 0


def test_a_stream_that_is_opened_twice_goes_on() -> None:
    """A camera that moved between workers and came back before it was closed here."""
    house = House(live="a")
    house.submit("a")
    house.poll()
    house.end(after_s=0.020)
    house.scheduler.open("a", live=True)
    assert house.scheduler._queues.streams["a"].after_s == pytest.approx(0.020)


# Rows.


def _submit_rows(house: House, stream: str, rows: int) -> Future[Prediction]:
    one = frame(stream, 0, house.clock.now)
    one.picture = picture(1)
    one.regions = tuple(Region(str(k)) for k in range(rows))
    return house.scheduler.submit(one)


def test_batches_count_rows() -> None:
    house = House(profile(0.004, 0.0005, 8), live="abcd")
    for name, rows in zip("abcd", (3, 3, 2, 1), strict=True):
        _submit_rows(house, name, rows)
    assert sorted(house.poll()) == ["a", "b", "c"], "8 rows"
    house.end(0.008)
    assert house.poll() == "d"


def test_a_deadline_counts_all_rows_of_a_frame() -> None:
    """10 ms a row: five rows and 5 ms after them do not fit into 50 ms, four do."""
    house = House(live="ab")
    house.show_one_of_each("ab")
    four, five = _submit_rows(house, "a", 4), _submit_rows(house, "b", 5)
    assert house.poll() == "a"
    assert (four.running(), _cause(five)) == (True, "deadline")


def test_the_rest_of_a_frame_that_does_not_fit_runs_next() -> None:
    house = House(profile(0.004, 0.0005, 4), files="ab", max_batch=4)
    _submit_rows(house, "a", 10)
    for _ in range(4):
        _submit_rows(house, "b", 1)
    assert house.poll() == "a"
    assert house.poll() == "a"
    house.end(finish=False)
    assert house.poll() == "a"
    parts = [house.batches[-2][0], house.batches[-1][0]]
    assert [(p.first, p.stop) for p in parts] == [(4, 8), (8, 10)]
    house.end(finish=False)
    house.end()
    assert house.poll() == "bbbb"


def test_a_frame_that_is_requeued_ignores_the_parts_of_its_earlier_run() -> None:
    house, other = House(profile(0.004, 0.0005, 4), files="a", max_batch=4), House(files="a")
    future = _submit_rows(house, "a", 6)
    house.poll()
    (first,) = house.batches[0]
    (entry,) = house.scheduler.evict()
    assert not first.valid
    assert other.scheduler.requeue(entry)
    (part,) = other.scheduler.poll()
    assert (part.first, part.stop, part.valid, future.running()) == (0, 6, True, True)


def test_each_stream_keeps_its_own_budget() -> None:
    house = House()
    house.scheduler.open("strict", live=True, budget_s=0.030)
    house.scheduler.open("lax", live=True, budget_s=0.100)
    for name in ("strict", "lax"):
        house.submit(name)
    while house.poll():
        house.end()
    strict, lax = house.submit("strict"), house.submit("lax")
    house.clock.now += 0.020
    house.poll()
    assert _cause(strict) == "deadline"
    assert lax.running()
