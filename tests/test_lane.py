"""One stream's lane between scripted parts: every captured frame ends exactly once, in order."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipelines.crew import Crew
from pipelines.errors import SourceError
from pipelines.frame import CAUSES, NOTHING, Capture, Frame, Picture, Prediction, Result
from pipelines.lane import Lane, LaneOptions, Outputs
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.sinks.sink import Look
from pipelines.sources.files.file import FileSource
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.sources.wrappers.pace import Loop, Realtime
from tests.clips import level, numbered
from tests.fakes import PATIENCE_S, Board, Collected, FakePredictor, Scripted, Shelf, capture, labels_of
from tests.system import seeds

pytestmark = pytest.mark.timeout(30)
SOON_S = 0.5


class Made:
    """A lane with everything around it."""

    def __init__(
        self,
        source: Any,
        decide: Callable[[Frame], str] = lambda frame: "ok",
        *,
        options: LaneOptions | None = None,
        sinks: Sequence[Any] | None = None,
        screen: Any = None,
        render: Any = None,
        results: Collected | None = None,
    ) -> None:
        self.source = source
        self.predictor = FakePredictor(decide)
        self.ledger: StreamLedger = LatencyMonitor(0.05).open("door", live=source.live)
        self.sink = Shelf()
        self.results = results or Collected()
        self.lost: list[str] = []
        outputs = Outputs(
            [self.sink] if sinks is None else sinks,
            () if screen is None else (screen,),
            render,
            sink_lost=lambda: self.lost.append("sink"),
        )
        self.lane = Lane("door", source, self.predictor, outputs, self.ledger, self.results, options)

    def run(self) -> Made:
        """Run it to its end."""
        with self.running():
            pass
        return self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it meanwhile; leaving waits for its end."""
        with Crew(self.lane.stop) as crew:
            crew.start("lane:door", lambda: self.lane.run(crew))
            yield
        self.balanced()

    def balanced(self) -> None:
        """Every captured frame has ended exactly once, in order, and is in the ledger as it is in the log."""
        ledger = self.ledger
        assert self.results.indices == list(range(ledger.captured))
        status = Counter(r.status for r in self.results.results)
        assert (ledger.shown, ledger.failed) == (status["ok"], status["failed"])
        causes = Counter(r.cause for r in self.results.results if r.status == "dropped")
        assert {c: n for c, n in ledger.dropped.items() if n} == dict(causes)
        assert ledger.in_flight == 0
        assert ledger.ended
        assert sorted(self.predictor.finished) == sorted(self.predictor.taken), "each taken frame is finished once"
        assert self.predictor.closed == ["door"]


def clip(frames: int = 10, **kind: Any) -> list[Capture]:
    return [capture(k, **kind) for k in range(frames)]


def ends(made: Made) -> list[str]:
    """How each frame ended, by index."""
    return [r.cause or r.status for r in made.results.results]


# The plain way.


def test_every_frame_is_shown_once_in_order_with_its_own_answer() -> None:
    made = Made(Scripted(clip())).run()
    assert made.sink.shown == list(range(10))
    assert [labels_of(r.prediction)[0].id for r in made.results.results if r.prediction] == [level(k) for k in range(10)]
    assert made.lane.complete
    assert made.lane.error is None
    assert made.predictor.opened == {"door": False}
    assert made.source.closed_in == "decode:door"


def test_a_source_without_frames() -> None:
    made = Made(Scripted([])).run()
    assert made.lane.complete
    assert made.ledger.captured == 0


def test_the_numbers_run_on_across_sessions() -> None:
    made = Made(Loop(Scripted(clip(3))), options=LaneOptions(max_frames=8)).run()
    assert [(r.frame.session, r.frame.index) for r in made.results.results] == [(k // 3, k) for k in range(8)]


def test_answers_that_come_in_another_order_are_shown_in_frame_order() -> None:
    made = Made(Scripted(clip()), lambda frame: "later")
    with made.running():
        made.predictor.until_waiting(10)
        for k in (9, 3, 1, 0, 2, 8, 7, 4, 6, 5):
            made.predictor.answer(k)
    assert made.sink.shown == list(range(10))


def test_stamps_rise_and_the_stages_add_up() -> None:
    def render(frame: Frame, prediction: Prediction) -> Picture:
        return frame.picture

    made = Made(Scripted(clip()), render=render).run()
    for result in made.results.results:
        t = result.frame.trace
        stamps = [t.arrived_s, t.decoded_s, t.taken_s, t.staged_s, t.inferred_s, t.picked_s, t.rendered_s, t.shown_s]
        assert None not in stamps
        assert stamps == sorted(stamps)  # type: ignore[type-var]
        stages = t.stages()
        assert sum(s for name, s in stages.items() if name != "total") == pytest.approx(stages["total"])


def test_what_was_drawn_is_what_the_sink_gets() -> None:
    drawn: list[Picture] = []
    seen: list[Picture] = []

    class Seen(Shelf):
        def show(self, frame: Frame, picture: Picture) -> None:
            seen.append(picture)

    def render(frame: Frame, prediction: Prediction) -> Picture:
        assert labels_of(prediction)[0].id == frame.picture.y[0, 0]
        drawn.append(Picture(frame.picture.y.copy(), frame.picture.u, frame.picture.v))
        return drawn[-1]

    Made(Scripted(clip(5)), render=render, sinks=[Seen()]).run()
    assert [id(p) for p in seen] == [id(p) for p in drawn]


# Ends other than shown.


def test_what_drawing_needs_is_made_in_the_lane_s_thread_before_the_first_picture_while_the_source_opens() -> None:
    done: list[str] = []
    source = Scripted(clip(3))
    made = Made(source)

    def prepare() -> None:
        assert source.waiting.wait(PATIENCE_S), "the source was opened meanwhile"
        done.append(threading.current_thread().name)

    def render(frame: Frame, prediction: Prediction) -> Picture:
        done.append(f"picture {frame.index}")
        return frame.picture

    made.lane._outputs = replace(made.lane._outputs, render=render, prepare=prepare)
    made.run()
    assert done == ["lane:door", "picture 0", "picture 1", "picture 2"]


def test_drops_failures_and_cancellations_are_in_the_results_in_their_place() -> None:
    how = ["ok", "dropped:overload", "failed", "dropped:deadline", "cancelled", "ok", "dropped:shutdown", "failed", "ok", "ok"]
    made = Made(Scripted(clip()), lambda frame: how[frame.index]).run()
    assert ends(made) == [
        "ok",
        "overload",
        "failed",
        "deadline",
        "shutdown",
        "ok",
        "shutdown",
        "failed",
        "ok",
        "ok",
    ]
    assert made.sink.shown == [0, 5, 8, 9]
    errors = [r.error for r in made.results.results if r.status == "failed"]
    assert [str(e) for e in errors] == ["bad frame 2", "bad frame 7"]
    assert made.ledger.faults == ["frame 2 failed: bad frame 2"], "one fault for each kind of error"
    assert made.lane.complete


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        (["corrupt", "corrupt"], ["no frame of it could be shown: 2 corrupt"]),
        (["failed", "corrupt"], ["frame 0 failed: bad frame 0", "no frame of it could be shown: 1 corrupt, 1 failed"]),
        (["corrupt", "ok"], []),
        (["corrupt", "dropped:shutdown"], []),
        (["dropped:overload", "dropped:deadline"], []),
    ],
)
def test_a_stream_of_which_nothing_was_good_has_failed(how: list[str], fault: list[str]) -> None:
    captures = [capture(k, corrupt=h == "corrupt") for k, h in enumerate(how)]
    assert Made(Scripted(captures), lambda frame: how[frame.index]).run().ledger.faults == fault


def test_what_was_left_out_on_purpose_is_no_failure() -> None:
    made = Made(Scripted([capture(1), capture(2)]), lambda frame: "dropped:skipped").run()
    assert made.ledger.faults == []


def test_corrupt_frames_never_reach_the_predictor() -> None:
    made = Made(Scripted([capture(k, corrupt=3 <= k < 6) for k in range(10)])).run()
    assert made.predictor.taken == [0, 1, 2, 6, 7, 8, 9]
    assert ends(made)[3:6] == ["corrupt"] * 3


def test_a_frame_that_is_not_shown_lets_its_planes_go_before_its_turn() -> None:
    captures = [capture(0), capture(1, corrupt=True), capture(2)]
    made = Made(Scripted(captures, wait=True), lambda frame: "later")
    frames: list[Frame] = []
    put = made.lane._inbox.put
    made.lane._inbox.put = lambda frame, future: (frames.append(frame), put(frame, future))[1]  # type: ignore[method-assign]
    with made.running():
        made.predictor.until_waiting(2)
        assert made.results.results == []
        assert frames[1].picture.y.shape == (1, 1)
        assert frames[0].picture.y.shape == (4, 4)
        made.predictor.answer(0)
        made.predictor.answer(2)
        made.lane.stop()


# Which frames are worked on.


@pytest.mark.parametrize("stride", [1, 2, 3, 7])
def test_stride(stride: int) -> None:
    made = Made(Scripted(clip(20)), options=LaneOptions(stride=stride)).run()
    assert made.sink.shown == list(range(0, 20, stride))
    assert made.ledger.dropped["skipped"] == 20 - len(made.sink.shown)


@pytest.mark.parametrize(("fps", "wanted"), [(25, 100), (30, 100), (12.5, 50), (10, 40), (5, 20), (1, 4)])
def test_a_file_s_rate_is_limited_by_its_own_time(fps: float, wanted: int) -> None:
    made = Made(Scripted(clip(100)), options=LaneOptions(max_fps=fps)).run()
    assert len(made.sink.shown) == wanted
    times = [k / 25 for k in made.sink.shown]
    assert all(t >= n / fps - 1e-3 for n, t in enumerate(times))


def test_the_limit_begins_anew_with_a_session() -> None:
    made = Made(Scripted(clip(50) + clip(50, session=1)), options=LaneOptions(max_fps=5)).run()
    assert made.sink.shown == list(range(0, 100, 5))


def test_a_limit_of_the_rate_holds_for_a_camera_by_its_arrivals() -> None:
    captures = [Capture(c.picture, None, k / 25, k / 25, c.info) for k, c in enumerate(clip(50))]
    made = Made(Scripted(captures, live=True), options=LaneOptions(max_fps=5)).run()
    assert made.sink.shown == list(range(0, 50, 5))


def test_max_frames_counts_captured_ones_and_is_a_normal_end() -> None:
    made = Made(Scripted(clip(20), wait=True), options=LaneOptions(max_frames=6, stride=2)).run()
    assert made.ledger.captured == 6
    assert made.sink.shown == [0, 2, 4]
    assert made.lane.error is None
    assert made.ledger.faults == []
    assert made.source.closed_in == "decode:door"


# Errors.


def test_a_source_that_breaks_off_is_a_fault_after_all_that_came_was_shown() -> None:
    error = SourceError("door: the camera went away")
    made = Made(Scripted(clip(4), error=error), lambda frame: "ok").run()
    assert made.sink.shown == [0, 1, 2, 3]
    assert made.lane.error is error
    assert made.ledger.faults == [str(error)]
    assert not made.lane.complete


def test_an_error_that_is_kept_holds_nothing_of_its_source() -> None:
    """A thousand broken files would keep a thousand decoders."""
    made = Made(Scripted([], error=SourceError("gone"))).run()
    assert made.lane.error is not None
    assert made.lane.error.__traceback__ is None


def test_an_error_of_the_decoder_comes_out_with_its_thread_s_name() -> None:
    made = Made(Scripted(clip(4), error=ZeroDivisionError("in the decoder")))
    with pytest.raises(ZeroDivisionError) as caught:
        made.run()
    assert caught.value.__notes__ == ["in thread decode:door"]
    made.balanced()


def test_an_error_of_the_overlay_comes_out_with_its_thread_s_name_and_ends_the_source() -> None:
    def render(frame: Frame, prediction: Prediction) -> Picture:
        if frame.index == 2:
            raise KeyError("font")
        return frame.picture

    made = Made(Scripted(clip(5), wait=True), render=render)
    with pytest.raises(KeyError) as caught:
        made.run()
    assert caught.value.__notes__ == ["in thread lane:door"]
    assert ends(made)[:3] == ["ok", "ok", "failed"]
    assert set(ends(made)[3:]) <= {"shutdown"}
    assert made.source.closed_in == "decode:door"
    made.balanced()


def test_a_predictor_that_is_gone_comes_out() -> None:
    class Gone(FakePredictor):
        def submit(self, frame: Frame) -> Any:
            raise RuntimeError("the predictor has ended")

    made = Made(Scripted(clip(3)))
    made.predictor = made.lane._predictor = Gone()
    with pytest.raises(RuntimeError, match="has ended"), made.running():
        pass


def test_a_sink_that_fails_is_one_fault_and_the_others_go_on() -> None:
    made = Made(Scripted(clip(10)))
    broken, good = Shelf(fails=3), Shelf()
    made.lane._sinks = [broken, good]
    made.run()
    assert broken.shown == [0, 1, 2]
    assert broken.refused == 1, "a broken output is not written to again"
    assert good.shown == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert ends(made) == ["ok"] * 3 + ["failed"] + ["ok"] * 6
    assert made.ledger.faults == ["disk full: out.mp4"]
    assert made.lost == ["sink"]
    assert made.lane.complete


def test_a_stream_that_nobody_wants_any_more_drops_what_is_left() -> None:
    made = Made(Scripted(clip(10), wait=True), lambda frame: "later", sinks=[Shelf(fails=3)])
    made.lane._outputs = replace(made.lane._outputs, sink_lost=made.lane.abandon)
    with made.running():
        made.predictor.until_waiting(10)
        for k in range(10):
            made.predictor.answer(k)
    assert ends(made) == ["ok"] * 3 + ["failed"] + ["shutdown"] * 6
    assert made.ledger.faults == ["disk full: out.mp4"]
    assert not made.lane.complete


# The screen, which draws when it likes.


def test_frames_end_in_order_and_after_their_draw_whenever_the_screen_draws() -> None:
    board = Board()
    made = Made(Scripted(clip(6)), screen=board)
    with made.running():
        board.until(6)
        ended = dict(board.offers)
        assert made.results.results == []
        assert made.ledger.shown == 0
        ended[2](time.monotonic())
        ended[1](None)
        assert made.results.results == []
        drawn_s = time.monotonic()
        ended[0](drawn_s)
        assert made.results.indices == [0, 1, 2]
        ended[5](None)
        assert made.results.indices == [0, 1, 2]
        ended[3](None)
        ended[4](time.monotonic())
    assert made.ledger.shown == 6
    assert made.ledger.window_skipped == 3
    assert made.results.shown_s[0] == drawn_s
    first = made.results.results[0].frame.trace
    assert first.stages()["total"] == pytest.approx(drawn_s - first.arrived_s)
    assert first.rendered_s is not None
    assert drawn_s > first.rendered_s


def test_a_dropped_frame_waits_for_the_draw_of_the_one_before_it() -> None:
    board = Board()
    made = Made(Scripted([capture(0), capture(1, corrupt=True), capture(2)]), screen=board)
    with made.running():
        board.until(2)
        assert made.results.results == []
        board.offers[0][1](time.monotonic())
        assert made.results.indices == [0, 1]
        board.offers[1][1](None)


class Glass:
    """A screen that shows every third picture."""

    def __init__(self) -> None:
        self.shown: list[Picture] = []

    def offer(self, frame: Frame, look: Look, ended: Callable[[float | None], None]) -> None:
        assert frame.picture is NOTHING, "the lane keeps nothing"
        if frame.index % 3 == 0:
            self.shown.append(look())
        ended(time.monotonic() if frame.index % 3 == 0 else None)

    def forget(self, stream: str) -> None: ...


@pytest.mark.parametrize("only_screen", [True, False])
def test_pictures_that_only_the_screen_looks_at_are_drawn_on_when_it_shows_them(only_screen: bool) -> None:
    drawn: list[int] = []

    def render(frame: Frame, prediction: Prediction) -> Picture:
        drawn.append(frame.index)
        assert frame.picture.y[0, 0] == labels_of(prediction)[0].id == level(frame.index)
        return Picture(frame.picture.y + 1, frame.picture.u, frame.picture.v)

    glass = Glass()
    made = Made(Scripted(clip()), screen=glass, render=render)
    made.lane._outputs = replace(made.lane._outputs, only_screen=only_screen)
    made.run()
    assert drawn == (list(range(0, 10, 3)) if only_screen else list(range(10)))
    assert [p.y[0, 0] for p in glass.shown] == [level(k) + 1 for k in range(0, 10, 3)]
    assert ends(made) == ["ok"] * 10
    assert made.ledger.window_skipped == 6


# Stops, in every phase.


def test_a_stop_while_the_source_waits() -> None:
    made = Made(Scripted(clip(3), wait=True))
    with made.running():
        assert made.source.waiting.wait(PATIENCE_S)
        began_s = time.monotonic()
        made.lane.stop()
    assert time.monotonic() - began_s < SOON_S
    assert made.sink.shown == [0, 1, 2]
    assert not made.lane.complete
    assert made.lane.error is None


def test_a_stop_before_the_start() -> None:
    made = Made(Scripted(clip(3)))
    made.lane.stop()
    made.run()
    assert made.ledger.captured == 0
    assert not made.lane.complete


def test_a_source_s_error_at_a_stop_is_no_fault() -> None:
    made = Made(Scripted(clip(1), wait=True, error=SourceError("interrupted")))
    with made.running():
        assert made.source.waiting.wait(PATIENCE_S)
        made.lane.stop()
    assert made.lane.error is None
    assert made.ledger.faults == []


def test_a_stop_while_answers_are_awaited_ends_when_the_predictor_cancels() -> None:
    made = Made(Scripted(clip(4), wait=True), lambda frame: "later")
    with made.running():
        made.predictor.until_waiting(4)
        made.lane.stop()
        for k in made.predictor.waiting():
            made.predictor.answer(k, "cancelled")
    assert ends(made) == ["shutdown"] * 4


def test_a_stop_between_two_frames_of_a_real_camera_and_of_a_paced_file(tmp_path: Path) -> None:
    file = numbered(tmp_path / "num.mp4", frames=100)
    for source in (SyntheticSource(Synthetic(4, 4, 2)), Realtime(FileSource(file))):
        ready = threading.Event()
        made = Made(source, results=Collected(lambda result, ready=ready: ready.set()))  # type: ignore[misc]
        made.predictor.submit = _ok_of_any_size(made.predictor)  # type: ignore[method-assign]
        with made.running():
            assert ready.wait(PATIENCE_S)
            began_s = time.monotonic()
            made.lane.stop()
        assert time.monotonic() - began_s < SOON_S
        assert 0 < made.ledger.captured < 100


def _ok_of_any_size(predictor: FakePredictor) -> Callable[[Frame], Any]:
    def submit(frame: Frame) -> Any:
        from concurrent.futures import Future

        future: Future[Prediction] = Future()
        predictor._end(frame, future, "ok")
        return future

    return submit


def test_a_pause_holds_a_file_and_a_stop_ends_it() -> None:
    made = Made(Scripted(clip(5)))
    made.lane.pause()
    with made.running():
        made.lane.resume()
    assert made.sink.shown == list(range(5))

    paused = Made(Scripted(clip(5)))
    paused.lane.pause()
    with paused.running():
        began_s = time.monotonic()
        paused.lane.stop()
    assert time.monotonic() - began_s < SOON_S
    assert paused.ledger.captured == 0


def test_a_paused_camera_is_read_on_and_its_frames_are_counted_as_skipped() -> None:
    made = Made(Scripted(clip(5), live=True))
    made.lane.pause()
    made.run()
    assert made.sink.shown == []
    assert made.ledger.dropped["skipped"] == 5
    assert made.lane.complete


def test_a_lane_waits_for_its_consumers_before_each_frame_until_its_stop() -> None:
    class Full(Collected):
        full = True
        waits = 0

        def wait_for_room(self, stop: threading.Event) -> None:
            self.waits += 1
            waiting.set()
            assert stop.wait(PATIENCE_S)

    waiting = threading.Event()
    made = Made(Scripted(clip(3)), results=Full())
    with made.running():
        assert waiting.wait(PATIENCE_S)
        assert made.sink.shown == []
        made.lane.stop()
    assert made.results.waits == 3  # type: ignore[attr-defined]


def test_a_lane_hands_its_results_on_before_it_waits() -> None:
    """The full consumer is one of several; the others need not wait for it."""

    class FullAfterThree(Collected):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[list[int]] = []

        @property
        def full(self) -> bool:  # type: ignore[override]
            return made.ledger.shown == 3

        def wait_for_room(self, stop: threading.Event) -> None:
            self.seen.append(self.indices)
            made.lane.stop()

    results = FullAfterThree()
    made = Made(Scripted(clip(10)), results=results)
    made.run()
    assert results.seen[0] == [0, 1, 2]


def test_every_screen_gets_the_pictures_and_the_first_one_is_measured() -> None:
    first, second = Glass(), Glass()
    made = Made(Scripted(clip()))
    made.lane._outputs = replace(made.lane._outputs, screens=(first, second), only_screen=True)
    made.run()
    assert [p.y[0, 0] for p in first.shown] == [p.y[0, 0] for p in second.shown] == [level(k) for k in range(0, 10, 3)]
    assert made.ledger.window_skipped == 6


# Everything at once, by chance.


@pytest.mark.parametrize("seed", seeds(30))
def test_captured_is_shown_dropped_failed_and_in_flight_at_every_moment(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = ["ok", "ok", "ok", "failed", "later", "later", "cancelled", *(f"dropped:{c}" for c in CAUSES)]
    captures = [capture(k, corrupt=rng.random() < 0.1) for k in range(120)]
    board = Board() if seed % 3 == 0 else None
    ticks = count(1)

    def check(result: Result) -> None:
        """When a result is handed on, this frame and all before it have ended in the ledger."""
        ledger, ended = made.ledger, next(ticks)
        assert ledger.shown + ledger.failed + sum(ledger.dropped.values()) >= ended == result.frame.index + 1
        assert ledger.captured >= ended
        assert 0 <= ledger.in_flight <= 120 - ended
        assert ledger.captured <= made.source.given

    error = SourceError("gone") if seed % 4 == 0 else None
    options = LaneOptions(stride=rng.choice([1, 1, 3]), max_frames=rng.choice([None, None, 77]))
    made = Made(
        Scripted(captures, live=seed % 2 == 0, error=error),
        lambda frame: rng.choice(outcomes),
        options=options,
        screen=board,
        results=Collected(check),
    )
    closed = threading.Event()
    close = made.predictor.close
    made.predictor.close = lambda stream: (close(stream), closed.set())[0]  # type: ignore[method-assign]
    with made.running():
        assert closed.wait(PATIENCE_S)
        late = made.predictor.waiting()
        rng.shuffle(late)
        for index in late:
            made.predictor.answer(index, rng.choice(["ok", "failed", "dropped:deadline", "cancelled"]))
        if board is not None:
            _draw_all(made, board, rng)
    wanted = options.max_frames or 120
    assert made.ledger.captured == wanted


def _draw_all(made: Made, board: Board, rng: random.Random) -> None:
    """Draw or skip every picture, in an order of chance, until the lane has offered its last."""
    board.until(len(made.predictor.predicted))
    offers = board.offers[:]
    rng.shuffle(offers)
    for _, ended in offers:
        ended(time.monotonic() if rng.random() < 0.5 else None)
