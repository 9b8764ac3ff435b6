"""START HERE: one stream on its way from its source through the predictor to its sinks.

    decode:NAME   source.frames() -> number -> predictor.submit() -> inbox        (a file's submit waits for room)
    lane:NAME     inbox, in order, when answered -> overlay -> sinks -> screen -> ledger, log

Every captured frame goes through the inbox with a future, also one that is dropped before any work: so everything that
is written about a stream is in frame order. The end of a frame is in `ends.py`, since the window may draw later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from pipelines.channel import Closed
from pipelines.crew import Crew
from pipelines.errors import Dropped, SinkError, SourceError
from pipelines.frame import Capture, Cause, Frame, Picture, Prediction, Result, Trace
from pipelines.inbox import Inbox
from pipelines.monitor import StreamLedger
from pipelines.outcomes import Ends
from pipelines.sinks.sink import Log, Look, Screen, Sink
from pipelines.sources.source import Source

INBOX = 4096
"""Frames between decoder and lane. The scheduler bounds those that hold a picture; dropped ones are a few hundred bytes,
and a lane that hangs for minutes must not stop its camera's decoder before the rest of them fit in here."""


class Predictor(Protocol):
    """What a lane needs of the predictor; `AsyncBatchPredictor` says what each does."""

    def open(self, stream: str, *, live: bool) -> None: ...
    def submit(self, frame: Frame) -> Future[Prediction]: ...
    def finish(self, frame: Frame) -> None: ...
    def close(self, stream: str) -> None: ...


Render = Callable[[Frame, Prediction], Picture]
"""Draws on a copy of the frame's planes."""


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """Which frames are worked on. `stride`: every n-th; `max_fps`: at most so many a second; `max_frames`: captured, then
    the stream ends."""

    stride: int = 1
    max_fps: float | None = None
    max_frames: int | None = None


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where shown frames go. `render` is None where nobody looks at pictures. Owned by the app.

    only_screen: no sink looks at pictures, so that only those are drawn on which the screen shows, when it shows them. (In
    the lane, on every one, it cost a file of 320x240 a third of its 1700 frames/s.)
    """

    sinks: Sequence[Sink] = ()
    screen: Screen | None = None
    log: Log | None = None
    render: Render | None = None
    prepare: Callable[[], None] | None = None
    """Does in the lane's thread what would delay the first frame; called while the source is being opened."""
    only_screen: bool = False
    sink_lost: Callable[[], None] = _nothing
    """Called when a sink has failed. The stream goes on without it, unless it is abandoned."""
    log_lost: Callable[[SinkError], None] = _nothing
    """Called when the log has failed, which belongs to all streams: they go on without it."""


class Lane:
    """One stream. `run` returns when the stream has ended and everything about it is written."""

    def __init__(
        self,
        name: str,
        source: Source,
        predictor: Predictor,
        outputs: Outputs,
        ledger: StreamLedger,
        options: LaneOptions | None = None,
        *,
        go: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.complete = False
        """The source came to its own end, whole, and all of it was taken."""
        self.error: SourceError | None = None
        """What ended the source, if not its end."""
        self._source = source
        self._predictor = predictor
        self._outputs = outputs
        self._sinks = list(outputs.sinks)
        self._options = options or LaneOptions()
        self._go = go
        self._clock = clock
        self._stop = threading.Event()
        self._inbox = Inbox(INBOX)
        self._ends = Ends(ledger, outputs.log, outputs.log_lost)
        self._next_due_s: float | None = None
        self._failures: set[str] = set()
        self._wanted = True

    def stop(self) -> None:
        """End soon; what waits is dropped as `shutdown`. Any thread."""
        self._stop.set()

    def abandon(self) -> None:
        """Nobody wants this stream any more: end soon, and drop what was predicted, too. Any thread."""
        self._wanted = False
        self._stop.set()

    def run(self, crew: Crew) -> None:
        """Run the stream; its decoder is a thread of `crew`. Thread: lane:NAME."""
        self._predictor.open(self.name, live=self._source.live)
        crew.start(f"decode:{self.name}", self._decode)
        try:
            if self._outputs.prepare is not None:
                self._outputs.prepare()
            for frame, future in self._inbox:
                self._end(frame, future)
        except BaseException:
            self._stop.set()
            for frame, _ in self._inbox:
                self._not_shown(Result(frame, "dropped", cause="shutdown"))
            raise
        finally:
            self._stop.set()
            self._inbox.close()
            self.ledger.ended = True
        self._ends.wait()
        self.ledger.settle()
        self._see_what_came()

    def _see_what_came(self) -> None:
        """A stream that came and of which nothing was good has failed, though no frame was lost without a cause."""
        ledger, bad = self.ledger, {"corrupt": self.ledger.dropped["corrupt"], "failed": self.ledger.failed}
        if any(bad.values()) and not ledger.shown and not ledger.dropped["shutdown"]:
            why = ", ".join(f"{n} {what}" for what, n in bad.items() if n)
            ledger.fault(f"no frame of it could be shown: {why}")

    # Thread decode:NAME.

    def _decode(self) -> None:
        try:
            with closing(self._source.frames(self._stop, self.ledger)) as captures:
                for capture in captures:
                    if not self._wait_to_go():
                        break
                    frame = self._numbered(capture)
                    self._inbox.put(frame, self._admit(frame, capture))
                    if frame.index + 1 == self._options.max_frames:
                        break
                else:
                    self.complete = not self._stop.is_set() and not self.ledger.faults
        except SourceError as error:
            if not self._stop.is_set():
                self.error = error.bare()
                self.ledger.fault(str(error))
        except Closed:
            pass  # the lane has ended with an error of its own, which says why
        finally:
            self._predictor.close(self.name)
            self._inbox.close()

    def _wait_to_go(self) -> bool:
        """Wait while the person at the window has paused; False at a stop."""
        while self._go is not None and not self._go.wait(0.1):
            if self._stop.is_set():
                return False
        return not self._stop.is_set()

    def _numbered(self, capture: Capture) -> Frame:
        index = self.ledger.capture(capture.arrived_s, interlaced=capture.interlaced)
        self.ledger.expected = capture.info.frames
        trace = Trace(capture.arrived_s, capture.decoded_s)
        return Frame(self.name, capture.session, index, capture.picture, capture.pts_s, capture.info, trace, capture.captured_s)

    def _admit(self, frame: Frame, capture: Capture) -> Future[Prediction]:
        if capture.corrupt:
            return _dropped(frame, "corrupt")
        if self._skips(frame):
            return _dropped(frame, "skipped")
        return self._predictor.submit(frame)

    def _skips(self, frame: Frame) -> bool:
        if frame.index % self._options.stride:
            return True
        if self._options.max_fps is None:
            return False
        now = frame.trace.arrived_s if self._source.live or frame.pts_s is None else frame.pts_s
        period_s = 1 / self._options.max_fps
        if self._next_due_s is None or now < self._next_due_s - 2 * period_s:
            self._next_due_s = now  # the first frame, or a new session whose time begins at 0
        # A thousandth of slack: 25 fps asked of a 25 fps stream must not lose a frame to rounding.
        if now < self._next_due_s - period_s / 1000:
            return True
        self._next_due_s = max(self._next_due_s + period_s, now)
        return False

    # Thread lane:NAME.

    def _end(self, frame: Frame, future: Future[Prediction]) -> None:
        try:
            prediction = future.result()
        except CancelledError:
            result = Result(frame, "dropped", cause="shutdown")
        except Dropped as dropped:
            result = Result(frame, "dropped", cause=dropped.cause)
        except Exception as error:
            self._say_failure(frame, error)
            result = Result(frame, "failed", error=error)
        else:
            if self._wanted:
                return self._show(frame, prediction)
            result = Result(frame, "dropped", cause="shutdown")
        return self._not_shown(result)

    def _say_failure(self, frame: Frame, error: Exception) -> None:
        """A fault for each kind of error, however many frames it costs."""
        kind = type(error).__name__
        if kind not in self._failures:
            self._failures.add(kind)
            self.ledger.fault(f"frame {frame.index} failed: {error}")

    def _not_shown(self, result: Result) -> None:
        if result.frame.trace.taken_s is not None:
            self._predictor.finish(result.frame)
        result.frame.let_go()
        self._ends.add(result)()

    def _show(self, frame: Frame, prediction: Prediction) -> None:
        trace, outputs = frame.trace, self._outputs
        try:
            trace.picked_s = self._clock()
            picture = frame.picture
            if outputs.render and not outputs.only_screen:
                picture = outputs.render(frame, prediction)
            trace.rendered_s = self._clock()
            self._hand_out(frame, picture)
            trace.shown_s = self._clock()
        except Exception as error:
            self._not_shown(Result(frame, "failed", prediction, error=error))
            if not isinstance(error, SinkError):
                raise
            return
        self._predictor.finish(frame)
        end = self._ends.add(Result(frame, "ok", prediction))
        if outputs.screen is None:
            frame.let_go()
            end()
            return
        look = self._later(frame, prediction) if outputs.only_screen else lambda: picture
        frame.let_go()
        outputs.screen.offer(frame, look, lambda drawn_s: end(drawn_s=drawn_s, skipped=drawn_s is None))

    def _later(self, frame: Frame, prediction: Prediction) -> Look:
        """How the frame, which is let go now, will look if it is drawn."""
        kept, render = replace(frame), self._outputs.render
        return lambda: render(kept, prediction) if render else kept.picture

    def _hand_out(self, frame: Frame, picture: Picture) -> None:
        """:raises SinkError: if a sink fails; it gets no further frame."""
        for sink in self._sinks:
            try:
                sink.show(frame, picture)
            except SinkError as error:
                self._sinks.remove(sink)
                self.ledger.fault(str(error))
                self._outputs.sink_lost()
                raise


def _dropped(frame: Frame, cause: Cause) -> Future[Prediction]:
    frame.let_go()
    future: Future[Prediction] = Future()
    future.set_exception(Dropped(cause))
    return future
