"""Streams come and go while a session runs, and every frame of each of them is accounted for."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import SinkError, SourceError, Stopped, UsageError
from pipelines.frame import WHOLE, Capture, Frame, Picture, Region, Result
from pipelines.lane import Outputs
from pipelines.predict.engines.probe import ProbeEngine
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import ProbePreprocess
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.session import Session, SessionOptions, StreamEnd
from pipelines.sources.source import Source
from pipelines.sources.stream_options import StreamOptions
from pipelines.sources.stream_spec import StreamSpec
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.tasks.classification import ClassificationTask
from pipelines.watch import Watch
from tests.clips import level
from tests.fakes import PATIENCE_S, Scripted, Shelf, capture, labels_of

pytestmark = pytest.mark.timeout(60)


@dataclass(frozen=True)
class ProbeModel:
    """The probe behind a predictor."""

    predictor: AsyncBatchPredictor

    def keep_profile(self) -> None: ...


def probe(events: PredictorEvents) -> ProbeModel:
    task = ClassificationTask([str(k) for k in range(256)])
    options = PredictorOptions(scheduler=SchedulerOptions(budget_s=1.0, max_batch=8))
    return ProbeModel(AsyncBatchPredictor(ProbeEngine(), ProbePreprocess(), task, options, events=events))


def spec(name: str, **options: Any) -> StreamSpec:
    return StreamSpec(name, "synthetic", "synthetic:4x4@25", options=StreamOptions(**options))


def clip(frames: int = 10) -> list[Capture]:
    return [capture(k) for k in range(frames)]


class Paced:
    """A source without end that gives a picture every few milliseconds and loses none: it is not live."""

    def __init__(self, period_s: float = 0.01, *, live: bool = False) -> None:
        self.live = live
        self._period_s = period_s

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        number = 0
        while not stop.wait(self._period_s):
            yield capture(number)
            number += 1


class Collects:
    """Remembers every result by stream; `until` waits for some."""

    def __init__(self) -> None:
        self.results: dict[str, list[Result]] = {}
        self._changed = threading.Condition()

    def __call__(self, result: Result) -> None:
        with self._changed:
            self.results.setdefault(result.frame.stream, []).append(result)
            self._changed.notify_all()

    def until(self, stream: str, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.results.get(stream, [])) >= count, PATIENCE_S)

    def indices(self, stream: str) -> list[int]:
        return [r.frame.index for r in self.results[stream]]


@contextmanager
def session(**options: Any) -> Iterator[tuple[Session[ProbeModel], Collects]]:
    seen = Collects()
    with Session(probe, SessionOptions(**options)) as made:
        made.subscribe(seen)
        yield made, seen


def source(made: Source) -> Callable[[threading.Event], Source]:
    return lambda stop: made


def test_a_stream_is_run_to_its_end() -> None:
    with session() as (made, seen):
        made.add(spec("door"), source=source(Scripted(clip())))
        assert made.wait(PATIENCE_S)
    assert seen.indices("door") == list(range(10))
    assert [labels_of(r.prediction)[0].id for r in seen.results["door"] if r.prediction] == [level(k) for k in range(10)]
    report = made.report().as_dict()["streams"]["door"]
    assert (report["captured"], report["shown"]) == (10, 10)
    assert [(c.name, c.taken, c.missed, c.failed) for c in made.report().consumers] == [("callback", 10, 0, False)]


def test_streams_are_added_while_others_run() -> None:
    with session() as (made, seen):
        made.add(spec("steady"), source=source(Paced()))
        seen.until("steady", 5)
        made.add(spec("late"), source=source(Scripted(clip())))
        seen.until("late", 10)
        made.remove("steady")
        assert made.wait(PATIENCE_S)
    assert seen.indices("late") == list(range(10))
    assert seen.indices("steady") == list(range(len(seen.results["steady"])))


def test_the_spec_is_enough() -> None:
    with session() as (made, seen):
        made.add(StreamSpec("synthetic", "synthetic", "synthetic:64x64@200", options=StreamOptions(max_frames=5)))
        assert made.wait(PATIENCE_S)
    assert len(seen.results["synthetic"]) == 5


def test_a_removed_stream_is_drained_and_leaves_its_final_figures() -> None:
    shelf = Shelf()
    with session() as (made, seen):
        made.add(spec("door"), Outputs([shelf]), source=source(Paced()))
        seen.until("door", 20)
        made.remove("door")
        assert [ledger.stream for ledger in made.monitor.ledgers] == []
        (figures,) = made.report().as_dict()["removed"]
        assert figures["name"] == "door"
        assert figures["captured"] == figures["shown"] + sum(figures["dropped"].values()) + figures["failed"] >= 20
        assert shelf.shown == list(range(figures["captured"])), "frames that were captured are finished"
        with pytest.raises(UsageError, match="no stream named 'door'; there are: none"):
            made.remove("door")
    assert seen.indices("door") == shelf.shown


def test_a_name_can_come_back_with_a_ledger_of_its_own() -> None:
    with session() as (made, seen):
        for frames in (3, 5, 2):
            made.add(spec("door"), source=source(Scripted(clip(frames))))
            assert made.wait(PATIENCE_S)
            assert made.report().as_dict()["streams"]["door"]["captured"] == frames
        assert [figures["captured"] for figures in made.report().as_dict()["removed"]] == [3, 5]
    assert seen.indices("door") == [0, 1, 2, 0, 1, 2, 3, 4, 0, 1]


def test_a_name_in_use_is_refused_and_the_open_stream_goes_on() -> None:
    with session() as (made, seen):
        made.add(spec("door"), source=source(Paced()))
        seen.until("door", 1)
        with pytest.raises(
            UsageError, match="a stream named 'door' is open; remove it first, or give the new one another name"
        ):
            made.add(spec("door"), source=source(Scripted(clip())))
        seen.until("door", len(seen.results["door"]) + 3)


def test_a_source_that_fails_ends_its_stream_alone() -> None:
    ends: list[StreamEnd] = []
    with session(ended=ends.append) as (made, seen):
        made.add(spec("good"), source=source(Paced()))
        made.add(spec("bad"), source=source(Scripted([], error=SourceError("no camera there"))))
        seen.until("good", 20)
    assert {e.name: str(e.error) for e in ends} == {"bad": "no camera there", "good": "None"}
    assert made.report().as_dict()["streams"]["bad"]["errors"] == ["no camera there"]


@pytest.mark.parametrize("at", ["source", "outputs"])
def test_a_stream_that_cannot_begin_ends_alone(at: str) -> None:
    def wrong(*_: object) -> Any:
        raise UsageError(f"no {at}")

    ends: list[StreamEnd] = []
    has_ended = threading.Event()

    def ended(end: StreamEnd) -> None:
        ends.append(end)
        has_ended.set()

    with session(ended=ended) as (made, seen):
        made.add(spec("good"), source=source(Paced()))
        seen.until("good", 3)
        made.add(spec("bad"), wrong if at == "outputs" else None, source=wrong if at == "source" else source(Paced()))
        assert has_ended.wait(PATIENCE_S)
        seen.until("good", len(seen.results["good"]) + 3)
        assert [(end.name, str(end.error), end.captured) for end in ends] == [("bad", f"no {at}", 0)]
        assert made.report().streams["bad"].errors == (f"no {at}",)
        made.remove("bad")
        made.add(spec("bad"), source=source(Scripted(clip(3))))
        seen.until("bad", 3)


def test_pause_and_resume_of_one_stream() -> None:
    with session() as (made, seen):
        made.add(spec("a"), source=source(Paced()))
        made.add(spec("b"), source=source(Paced()))
        seen.until("a", 3)
        made.pause("a")
        before = len(seen.results["a"])
        seen.until("b", 40)
        assert len(seen.results["a"]) <= before + 3, "frames that were on their way"
        made.resume("a")
        seen.until("a", before + 10)
        with pytest.raises(UsageError, match="no stream named 'c'; there are: a, b"):
            made.pause("c")


def test_a_pause_of_files_holds_also_files_that_come_later_and_no_camera() -> None:
    with session() as (made, seen):
        made.pause_files(True)
        made.add(spec("file"), source=source(Scripted(clip())))
        made.add(spec("camera"), source=source(Paced(live=True)))
        seen.until("camera", 10)
        assert "file" not in seen.results
        made.pause_files(False)
        seen.until("file", 10)


def test_the_end_of_a_pause_of_files_leaves_a_paused_stream_paused() -> None:
    with session() as (made, seen):
        made.add(spec("held"), source=source(Paced()))
        made.add(spec("free"), source=source(Paced()))
        seen.until("held", 3)
        seen.until("free", 1)
        made.pause("held")
        made.pause_files(True)
        made.pause_files(False)
        before, free = len(seen.results["held"]), len(seen.results["free"])
        seen.until("free", free + 40)
        assert len(seen.results["held"]) <= before + 3, "frames that were on their way"


def test_options_of_one_stream() -> None:
    with session() as (made, seen):
        made.add(spec("all"), source=source(Scripted(clip(20))))
        made.add(spec("some", stride=5, topk=2), source=source(Scripted(clip(20))))
        assert made.wait(PATIENCE_S)
    shown = [r for r in seen.results["some"] if r.prediction is not None]
    assert [r.frame.index for r in shown] == [0, 5, 10, 15]
    assert {len(labels_of(r.prediction)) for r in shown if r.prediction} == {2}
    assert {len(labels_of(r.prediction)) for r in seen.results["all"] if r.prediction} == {5}


def test_zones_are_regions_of_every_frame() -> None:
    zones = (Region("left", (0.0, 0.0, 0.5, 1.0)), Region("right", (0.5, 0.0, 1.0, 1.0)))
    with session() as (made, seen):
        made.add(StreamSpec("door", "synthetic", "", zones=zones), source=source(Scripted(clip(5))))
        assert made.wait(PATIENCE_S)
    for result in seen.results["door"]:
        assert result.prediction is not None
        assert list(result.prediction.answers) == ["left", "right"]
        assert WHOLE not in result.prediction.answers


def test_outputs_are_closed_when_their_stream_ends() -> None:
    closed: list[bool] = []

    class Closes(Shelf):
        def close(self, complete: bool) -> None:
            closed.append(complete)

    with session() as (made, _):
        made.add(spec("door"), Outputs([Closes()]), source=source(Scripted(clip())))
        assert made.wait(PATIENCE_S)
        assert closed == [True]


def test_a_stream_whose_only_output_fails_is_abandoned_unless_it_is_wanted_for_its_figures() -> None:
    for keep_going in (False, True):
        with Session(probe, SessionOptions(keep_going=keep_going)) as made:
            made.add(spec("door"), Outputs([Shelf(fails=3)]), source=source(Scripted(clip(10), wait=not keep_going)))
            assert made.wait(PATIENCE_S)
        figures = made.report().as_dict()["streams"]["door"]
        assert figures["errors"] == ["disk full: out.mp4"]
        assert figures["shown"] == (9 if keep_going else 3)


def test_a_stream_goes_on_for_the_output_that_is_left() -> None:
    good = Shelf()
    with Session(probe) as made:
        made.add(spec("door"), Outputs([Shelf(fails=3), good]), source=source(Scripted(clip(10))))
        assert made.wait(PATIENCE_S)
    assert len(good.shown) >= 9, "all but the frame that failed"
    assert made.report().streams["door"].captured == 10


def test_a_consumer_that_fails_ends_only_streams_that_have_nothing_else() -> None:
    def broken(result: Result) -> None:
        raise SinkError("disk full: lines")

    shelf = Shelf()
    with Session(probe) as made:
        made.subscribe(broken)
        made.add(spec("lines only"), source=source(Paced()))
        made.add(spec("video too"), Outputs([shelf]), source=source(Scripted(clip())))
        assert made.wait(PATIENCE_S)
    assert shelf.shown == list(range(10))
    assert made.report().as_dict()["errors"] == ["disk full: lines"]


def test_consumers_come_and_go_while_it_runs() -> None:
    with session() as (made, seen):
        made.add(spec("door"), source=source(Paced()))
        seen.until("door", 3)
        late = Collects()
        consumer = made.subscribe(late, "late")
        late.until("door", 3)
        made.unsubscribe(consumer)
        seen.until("door", len(seen.results["door"]) + 10)
        assert [c.name for c in made.snapshot().consumers] == [c.name for c in made.report().consumers] == ["callback"]
    first = late.indices("door")[0]
    assert late.indices("door") == list(range(first, first + len(late.results["door"])))


def test_a_stop_ends_everything_and_nothing_can_be_added() -> None:
    with session() as (made, seen):
        made.add(spec("file"), source=source(Paced()))
        made.add(spec("camera"), source=source(SyntheticSource(Synthetic(4, 4, 50))))
        seen.until("camera", 3)
        began_s = time.monotonic()
        made.stop()
        assert made.wait(PATIENCE_S)
        assert time.monotonic() - began_s < 1.0
        with pytest.raises(Stopped):
            made.add(spec("other"), source=source(Scripted(clip())))
    for figures in made.report().as_dict()["streams"].values():
        assert figures["captured"] == figures["shown"] + sum(figures["dropped"].values()) + figures["failed"]


def test_a_spec_shows_no_secret() -> None:
    made = StreamSpec.of("door", "http://u:SECRET@h/x?token=SECRET")
    assert made.credentials is not None
    assert "SECRET" not in f"{made} {made!r} {made.credentials}"


def test_a_session_by_the_name_of_its_model() -> None:
    seen = Collects()
    with Session("probe") as made:
        made.subscribe(seen)
        made.add(StreamSpec.of("door", "synthetic:64x64@200", StreamOptions(max_frames=5)))
        assert made.wait(PATIENCE_S)
    assert seen.indices("door") == list(range(5))


def test_a_result_is_a_line_of_text() -> None:
    with session() as (made, seen):
        made.add(spec("door"), source=source(Scripted(clip(2))))
        assert made.wait(PATIENCE_S)
    first = seen.results["door"][0]
    assert first.prediction is not None
    assert str(first) == f"door 0: {first.prediction.answer}"
    assert str(Result(first.frame, "dropped", cause="overload")) == "door 0: dropped (overload)"
    assert str(Result(first.frame, "failed", error=ValueError("wrong"))) == "door 0: failed (wrong)"


def test_a_session_that_fails_to_begin_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: ProbeModel) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(ProbeModel, "keep_profile", full)
    made, before = Session(probe), threading.active_count()
    made.subscribe(print)
    with pytest.raises(OSError, match="disk full"):
        made.__enter__()
    assert threading.active_count() == before
    with pytest.raises(Stopped, match="was left"):
        made.add(spec("door"))


def test_things_of_a_wrong_type_are_refused_at_once() -> None:
    with session() as (s, _):
        with pytest.raises(UsageError, match=r"Session\.add takes a StreamSpec, got 'rtsp://camera/door'"):
            s.add("rtsp://camera/door")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"Session\.subscribe takes a Consumer or a function of one Result, got 5"):
            s.subscribe(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the source of the stream 'door' must be a text or a path, got None"):
        StreamSpec.of("door", None)  # type: ignore[arg-type]


def test_a_session_is_entered_once() -> None:
    with session() as (made, _), pytest.raises(RuntimeError, match="entered once"):
        made.__enter__()


def test_it_must_be_entered_first() -> None:
    made = Session(probe)
    with pytest.raises(Stopped, match="not entered yet"):
        made.add(spec("door"), source=source(Scripted(clip())))
    with pytest.raises(RuntimeError, match="not loaded yet"):
        _ = made.model
    with pytest.raises(RuntimeError, match="not entered yet"):
        made.wait()


def test_a_stop_before_the_model_is_loaded() -> None:
    made = Session(probe)
    made.stop()
    with pytest.raises(Stopped), made:
        pass


def test_leaving_without_a_wait_ends_the_streams() -> None:
    with session() as (made, seen):
        made.add(spec("door"), source=source(Paced()))
        seen.until("door", 1)
    assert made.monitor.ledgers[0].in_flight == 0


@pytest.mark.parametrize("adds", [False, True], ids=["while waiting", "in a later call"])
def test_an_error_in_a_lane_comes_out_of_the_with(adds: bool) -> None:
    """The error itself, also if a later call raised Stopped because of it."""

    def render(frame: Frame, prediction: Any) -> Picture:
        raise KeyError("font")

    made = Session(probe)

    def run() -> None:
        with made:
            made.add(spec("door"), Outputs(render=render), source=source(Scripted(clip())))
            assert made.wait(PATIENCE_S)
            if adds:
                made.add(spec("late"), source=source(Scripted(clip())))

    with pytest.raises(KeyError, match="font"):
        run()


def test_ended_may_remove_its_stream() -> None:
    def ended(end: StreamEnd) -> None:
        made.remove(end.name)

    with session(ended=ended) as (made, seen):
        for _ in range(3):
            made.add(spec("door"), source=source(Scripted(clip(3))))
            assert made.wait(PATIENCE_S)
    assert len(seen.results["door"]) == 9


def test_nothing_is_subscribed_after_the_session() -> None:
    with session() as (made, _):
        pass
    with pytest.raises(Stopped):
        made.subscribe(print)


def test_ended_may_add_the_next_stream() -> None:
    left = [f"file{k}" for k in range(5)]

    def ended(end: StreamEnd) -> None:
        if left:
            made.add(spec(left.pop(0)), source=source(Scripted(clip(3))))

    with session(ended=ended) as (made, seen):
        made.add(spec("first"), source=source(Scripted(clip(3))))
        assert made.wait(PATIENCE_S)
    lengths = {name: len(results) for name, results in seen.results.items()}
    assert lengths == dict.fromkeys(("first", "file0", "file1", "file2", "file3", "file4"), 3)


# Adds and removes at random.

CHANGES = 500
SETTLED = 100
GROWTH_MB = 5.0


def test_five_hundred_adds_and_removes_beside_two_steady_streams() -> None:
    rng = random.Random(7)
    counts: Counter[str] = Counter()
    steady = ("steady-1", "steady-2")
    order: dict[str, int] = dict.fromkeys(steady, 0)

    def count(result: Result) -> None:
        stream = result.frame.stream
        counts[result.status] += 1
        if stream in order:
            assert (result.frame.index, result.status) == (order[stream], "ok")
            order[stream] += 1

    with Session(probe) as made:
        made.subscribe(count)
        for name in steady:
            made.add(spec(name), source=source(Paced(0.005)))
        open_names: set[str] = set()
        marks: list[tuple[int, int, float]] = []
        for change in range(CHANGES):
            if change == SETTLED or change == CHANGES - 1:
                _remove_all(made, open_names)
                marks.append(_footprint())
            elif open_names and (len(open_names) > 8 or rng.random() < 0.45):
                name = rng.choice(sorted(open_names))
                made.remove(name)
                open_names.remove(name)
            else:
                name = rng.choice([f"cam{k}" for k in range(12) if f"cam{k}" not in open_names])
                made.add(spec(name), Outputs([Shelf()]), source=source(_any_source(rng)))
                open_names.add(name)
        for name in steady:
            made.remove(name)
        removed = made.report().as_dict()["removed"]
    assert len(removed) > CHANGES // 3
    for figures in removed:
        assert figures["captured"] == figures["shown"] + sum(figures["dropped"].values()) + figures["failed"]
    for figures in removed[-2:]:
        assert figures["captured"] == figures["shown"] == order[figures["name"]] > 50
    assert sum(f["captured"] for f in removed) == sum(counts.values())
    (threads, descriptors, mb), (threads_after, descriptors_after, mb_after) = marks
    assert (threads_after, descriptors_after) == (threads, descriptors)
    assert mb_after - mb < GROWTH_MB


def _any_source(rng: random.Random) -> Source:
    kind = rng.randrange(4)
    if kind == 0:
        return Scripted(clip(rng.randrange(30)))
    if kind == 1:
        return Scripted(clip(rng.randrange(5)), error=SourceError("gone"))
    return Paced(rng.choice([0.001, 0.01]), live=kind == 2)


def _remove_all(made: Session[ProbeModel], names: set[str]) -> None:
    for name in sorted(names):
        made.remove(name)
    names.clear()


def _footprint() -> tuple[int, int, float]:
    """Threads, descriptors and resident megabytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return threading.active_count(), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGESIZE") / 2**20


def test_the_lists_of_names_are_sequences() -> None:
    """`hanging` names the threads of an open session."""
    with session() as (made, seen):
        made.add(spec("door"), source=source(Paced()))
        seen.until("door", 1)
        names: Sequence[str] = made.hanging()
        assert set(names) == {"lane:door", "decode:door"}
