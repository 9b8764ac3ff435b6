"""Scripted parts around a lane: a source, a predictor, a sink, a screen, consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from fractions import Fraction

from pipelines.errors import Dropped, SinkError
from pipelines.frame import WHOLE, Capture, Frame, Picture, Prediction, Result, StreamInfo
from pipelines.sinks.sink import Look
from pipelines.tasks.classification import Classification, Label
from pipelines.watch import Watch
from tests.clips import grey, level

PATIENCE_S = 10.0


def capture(number: int, *, pts_s: float | None = None, corrupt: bool = False, session: int = 0) -> Capture:
    """A small picture that says its number."""
    now = time.monotonic()
    picture = Picture(*grey(level(number), (4, 4)))
    return Capture(picture, number / 25 if pts_s is None else pts_s, now, now, StreamInfo(rate=Fraction(25)), corrupt, session)


class Scripted:
    """A source that gives these captures, then raises `error` or ends; with `wait` it first waits for its stop."""

    def __init__(
        self, captures: Sequence[Capture], *, live: bool = False, error: BaseException | None = None, wait: bool = False
    ) -> None:
        self.live = live
        self.given = 0
        self.waiting = threading.Event()
        self.closed_in: str | None = None
        self._captures, self._error, self._wait = captures, error, wait

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        try:
            for one in self._captures:
                if stop.is_set():
                    return
                self.given += 1
                yield one
            self.waiting.set()
            if self._wait:
                assert stop.wait(PATIENCE_S)
            if self._error is not None:
                raise self._error
        finally:
            self.closed_in = threading.current_thread().name


Decide = Callable[[Frame], str]


class FakePredictor:
    """Answers at once by `decide`: "ok", "dropped:CAUSE", "failed", "cancelled" or "later".

    Those of "later" wait for `answer`, or for the close of their stream. It knows which frames the lane owes it.
    """

    def __init__(self, decide: Decide = lambda frame: "ok") -> None:
        self.decide = decide
        self.opened: dict[str, bool] = {}
        self.closed: list[str] = []
        self.finished: list[int] = []
        self.taken: list[int] = []
        self.predicted: list[int] = []
        self._changed = threading.Condition()
        self._later: dict[int, tuple[Frame, Future[Prediction]]] = {}

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None:
        self.opened[stream] = live

    def submit(self, frame: Frame) -> Future[Prediction]:
        assert frame.picture.y.shape == (4, 4), "the planes were let go too early"
        future: Future[Prediction] = Future()
        how = self.decide(frame)
        if how == "later":
            with self._changed:
                self._later[frame.index] = frame, future
                self._changed.notify_all()
        else:
            self._end(frame, future, how)
        return future

    def finish(self, frame: Frame) -> None:
        self.finished.append(frame.index)

    def close(self, stream: str) -> None:
        self.closed.append(stream)

    def until_waiting(self, count: int) -> None:
        """Until so many frames wait for their answer."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._later) >= count, PATIENCE_S)

    def answer(self, index: int, how: str = "ok") -> None:
        """End a frame that waits."""
        with self._changed:
            frame, future = self._later.pop(index)
        self._end(frame, future, how)

    def waiting(self) -> list[int]:
        """Frames that wait for their answer."""
        with self._changed:
            return list(self._later)

    def _end(self, frame: Frame, future: Future[Prediction], how: str) -> None:
        kind, _, cause = how.partition(":")
        if kind in ("ok", "failed"):
            frame.trace.taken_s = time.monotonic()
            self.taken.append(frame.index)
        if kind == "ok":
            self.predicted.append(frame.index)
            frame.trace.staged_s = frame.trace.inferred_s = time.monotonic()
            answer = Classification((Label(int(frame.picture.y[0, 0]), "grey", 0.5),))
            future.set_result(Prediction({WHOLE: answer}, frame.index, 1))
        elif kind == "failed":
            future.set_exception(ValueError(f"bad frame {frame.index}"))
        elif kind == "dropped":
            future.set_exception(Dropped(cause))
        else:
            assert future.cancel()
            future.set_running_or_notify_cancel()


class Shelf:
    """A sink that remembers its frames; it fails at the frame of the index `fails` and at each one after it."""

    def __init__(self, fails: int | None = None) -> None:
        self.shown: list[int] = []
        self.refused = 0
        self._fails = fails

    def show(self, frame: Frame, picture: Picture) -> None:
        if self._fails is not None and frame.index >= self._fails:
            self.refused += 1
            raise SinkError("disk full: out.mp4")
        self.shown.append(frame.index)

    def close(self, complete: bool) -> None: ...

    @property
    def written(self) -> int:
        return len(self.shown)


class Collected:
    """The consumers of a lane's results: it remembers them, at once and in the thread that hands them on; `at` is called with
    each."""

    def __init__(self, at: Callable[[Result], None] = lambda result: None) -> None:
        self.results: list[Result] = []
        self.shown_s: list[float | None] = []
        self._at = at

    def put(self, results: Sequence[Result]) -> None:
        for result in results:
            self.results.append(result)
            self.shown_s.append(result.frame.trace.shown_s)
            self._at(result)

    full = False

    def wait_for_room(self, stop: threading.Event) -> None: ...

    @property
    def indices(self) -> list[int]:
        return [r.frame.index for r in self.results]


class Board:
    """A screen that draws when the test says so."""

    def __init__(self) -> None:
        self.offers: list[tuple[int, Callable[[float | None], None]]] = []
        self._changed = threading.Condition()

    def offer(self, frame: Frame, look: Look, ended: Callable[[float | None], None]) -> None:
        assert look().y.shape == (4, 4)
        with self._changed:
            self.offers.append((frame.index, ended))
            self._changed.notify_all()

    def forget(self, stream: str) -> None: ...

    def until(self, count: int) -> None:
        """Until so many pictures were offered."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.offers) >= count, PATIENCE_S)


def labels_of(prediction: Prediction) -> tuple[Label, ...]:
    """The labels of the whole frame."""
    answer = prediction.answer
    assert isinstance(answer, Classification)
    return answer.labels
