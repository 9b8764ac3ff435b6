"""START HERE for one stream: from its source through the predictor to its sinks, its screens and its results.

    decode:NAME   source.frames() -> number -> predictor.submit() -> inbox        (a file's submit waits for room)
    lane:NAME     inbox, in order, when answered -> render -> sinks -> screens -> ledger, results

Every captured frame goes through the inbox with a future, also a frame that is dropped before any work: so everything that
is written about a stream is in frame order. A frame ends in `outcomes.py`, since the window may draw it later.
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
from pipelines.frame import WHOLE_FRAME, Capture, Cause, Frame, Picture, Prediction, Region, Result, Trace
from pipelines.inbox import Inbox
from pipelines.monitor.ledger import StreamLedger
from pipelines.outcomes import Fanout, Outcomes
from pipelines.sinks.sink import Look, Screen, Sink
from pipelines.sources.source import Source

INBOX = 4096
"""Frames between decoder and lane. The scheduler bounds those that hold a picture; a dropped frame is a few hundred bytes.
A lane that hangs for minutes does not stop its camera's decoder before these are used up."""
PAUSE_LOOK_S = 0.1
"""How often a paused file looks at its stop."""


class LanePredictor(Protocol):
    """The predictor as a lane uses it; `AsyncBatchPredictor` documents the methods."""

    def open(self, stream: str, *, live: bool, budget_s: float | None = None) -> None: ...
    def submit(self, frame: Frame) -> Future[Prediction]: ...
    def finish(self, frame: Frame) -> None: ...
    def close(self, stream: str) -> None: ...


Render = Callable[[Frame, Prediction], Picture]
"""Draws the answers on a copy of the frame's planes."""


@dataclass(frozen=True, slots=True)
class LaneOptions:
    """The frames that are predicted, and their regions."""

    stride: int = 1
    """Every n-th frame."""
    max_fps: float | None = None
    """At most so many frames a second."""
    max_frames: int | None = None
    """The stream ends after so many captured frames."""
    budget_s: float | None = None
    """Latency budget of a live stream; None: the predictor's."""
    regions: tuple[Region, ...] = WHOLE_FRAME
    """The parts of each frame that the model answers for."""


def _nothing(*_: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the shown frames of one stream go. The session owns and closes the sinks."""

    sinks: Sequence[Sink] = ()
    screens: Sequence[Screen] = ()
    """The draw of the first one ends a frame and is measured; the others only get the pictures."""
    render: Render | None = None
    """None: nobody looks at pictures."""
    prepare: Callable[[], None] | None = None
    """Does slow first-time work of `render` in the lane's thread while the source is being opened."""
    only_screen: bool = False
    """No sink looks at pictures: a frame is drawn only if a screen shows it, in the screen's thread. (Drawing every frame in
    the lane cost a file of 320x240 a third of its 1700 frames/s.)"""
    sink_lost: Callable[[], None] = _nothing
    """Called when a sink has failed. The stream goes on without it, unless it is abandoned."""


class Lane:
    """One stream. `run` returns when the stream has ended and every frame of it has its outcome."""

    def __init__(
        self,
        name: str,
        source: Source,
        predictor: LanePredictor,
        outputs: Outputs,
        ledger: StreamLedger,
        results: Fanout,
        options: LaneOptions | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.ledger = ledger
        self.complete = False
        """Whether the source came to its own end without a fault and all of it was read."""
        self.error: SourceError | None = None
        """Why the source ended early; None if it came to its end or was stopped."""
        self._source = source
        self._predictor = predictor
        self._outputs = outputs
        self._sinks = list(outputs.sinks)
        self._results = results
        self._options = options or LaneOptions()
        self._clock = clock
        self._stop = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._inbox = Inbox(INBOX)
        self._outcomes = Outcomes(ledger, results)
        self._next_due_s: float | None = None
        self._failures: set[str] = set()
        self._wanted = True

    def stop(self) -> None:
        """Read no further frame; frames that were read are finished while the predictor runs. Any thread."""
        self._stop.set()

    def abandon(self) -> None:
        """Stop, and drop the predicted frames too, as `shutdown`: every output of the stream is lost. Any thread."""
        self._wanted = False
        self._stop.set()

    def publish(self) -> None:
        """Hand on the results that the lane still collects, for a process that ends while the lane hangs. Any thread."""
        self._outcomes.publish()

    def pause(self) -> None:
        """Predict no further frame until `resume`. A file's decoder waits; a camera is read on, and its frames are dropped as
        `skipped`. Any thread."""
        self._running.clear()

    def resume(self) -> None:
        """End a pause. Any thread."""
        self._running.set()

    @property
    def has_sinks(self) -> bool:
        """Whether a sink still takes its pictures. Any thread."""
        return bool(self._sinks)

    def run(self, crew: Crew) -> None:
        """Run the stream to its end; its decoder is a thread of `crew`. Thread: lane:NAME."""
        self._predictor.open(self.name, live=self._source.live, budget_s=self._options.budget_s)
        crew.start(f"decode:{self.name}", self._decode)
        try:
            if self._outputs.prepare is not None:
                self._outputs.prepare()
            for frame, future in self._inbox:
                if self._results.full:
                    self._outcomes.publish()  # consumers with room do not wait for the full one
                    self._results.wait_for_room(self._stop)
                self._end(frame, future)
                if not self._inbox.ready:
                    self._outcomes.publish()
        except BaseException:
            self._stop.set()
            for frame, _ in self._inbox:
                self._not_shown(Result(frame, "dropped", cause="shutdown"))
            raise
        finally:
            self._stop.set()
            self._inbox.close()
            self.ledger.ended = True
            self._outcomes.publish()
        self._outcomes.wait()
        self.ledger.settle()
        self._note_fruitless_end()

    def _note_fruitless_end(self) -> None:
        """A stream without a single good frame has failed, though none of its frames was lost without a cause."""
        ledger, bad = self.ledger, {"corrupt": self.ledger.dropped["corrupt"], "failed": self.ledger.failed}
        if any(bad.values()) and not ledger.shown and not ledger.dropped["shutdown"]:
            counts = ", ".join(f"{n} {outcome}" for outcome, n in bad.items() if n)
            ledger.fault(f"no frame of it could be shown: {counts}")

    # Thread decode:NAME.

    def _decode(self) -> None:
        try:
            with closing(self._source.frames(self._stop, self.ledger)) as captures:
                for capture in captures:
                    if not self._wait_while_paused():
                        break
                    frame = self._numbered(capture)
                    self._inbox.put(frame, self._admit(frame, capture))
                    if frame.index + 1 == self._options.max_frames:
                        break
                else:
                    self.complete = not self._stop.is_set() and not self.ledger.faults
        except SourceError as error:
            if not self._stop.is_set():
                self.error = error.without_traceback()
                self.ledger.fault(str(error))
        except Closed:
            pass  # the lane has ended with an error of its own, which is the one to report
        finally:
            self._predictor.close(self.name)
            self._inbox.close()

    def _wait_while_paused(self) -> bool:
        """Hold a file while it is paused; False at a stop."""
        while not self._source.live and not self._running.wait(PAUSE_LOOK_S):
            if self._stop.is_set():
                return False
        return not self._stop.is_set()

    def _numbered(self, capture: Capture) -> Frame:
        index = self.ledger.capture(capture.arrived_s, interlaced=capture.interlaced)
        self.ledger.expected = capture.info.frames
        trace = Trace(capture.arrived_s, capture.decoded_s)
        return Frame(
            self.name,
            capture.session,
            index,
            capture.picture,
            capture.pts_s,
            capture.info,
            trace,
            capture.captured_s,
            self._options.regions,
        )

    def _admit(self, frame: Frame, capture: Capture) -> Future[Prediction]:
        if capture.corrupt:
            return _dropped(frame, "corrupt")
        if self._skips(frame):
            return _dropped(frame, "skipped")
        return self._predictor.submit(frame)

    def _skips(self, frame: Frame) -> bool:
        if frame.index % self._options.stride or not self._running.is_set():
            return True
        if self._options.max_fps is None:
            return False
        now = frame.trace.arrived_s if self._source.live or frame.pts_s is None else frame.pts_s
        period_s = 1 / self._options.max_fps
        if self._next_due_s is None or now < self._next_due_s - 2 * period_s:
            self._next_due_s = now  # the first frame, or a new session with media time from 0
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
            self._note_failure(frame, error)
            result = Result(frame, "failed", error=error)
        else:
            if self._wanted:
                return self._show(frame, prediction)
            result = Result(frame, "dropped", cause="shutdown")
        return self._not_shown(result)

    def _note_failure(self, frame: Frame, error: Exception) -> None:
        """One fault for each kind of error, however many frames it costs."""
        kind = type(error).__name__
        if kind not in self._failures:
            self._failures.add(kind)
            self.ledger.fault(f"frame {frame.index} failed: {error}")

    def _not_shown(self, result: Result) -> None:
        if result.frame.trace.taken_s is not None:
            self._predictor.finish(result.frame)
        result.frame.let_go()
        self._outcomes.add(result)()

    def _show(self, frame: Frame, prediction: Prediction) -> None:
        trace, outputs = frame.trace, self._outputs
        try:
            trace.picked_s = self._clock()
            picture = frame.picture
            if outputs.render and not outputs.only_screen:
                picture = outputs.render(frame, prediction)
            trace.rendered_s = self._clock()
            self._write(frame, picture)
            trace.shown_s = self._clock()
        except Exception as error:
            self._not_shown(Result(frame, "failed", prediction, error=error))
            if not isinstance(error, SinkError):
                raise
            return
        self._predictor.finish(frame)
        outcome = self._outcomes.add(Result(frame, "ok", prediction))
        look = self._drawn_later(frame, prediction) if outputs.only_screen else lambda: picture
        frame.let_go()
        if not outputs.screens:
            outcome()
            return
        measured, *others = outputs.screens
        for screen in others:
            screen.offer(frame, look, _nothing)
        measured.offer(frame, look, lambda drawn_s: outcome(drawn_s=drawn_s, skipped=drawn_s is None))

    def _drawn_later(self, frame: Frame, prediction: Prediction) -> Look:
        """Draws the frame when a screen shows it; keeps the planes that the frame lets go of now."""
        kept, render = replace(frame), self._outputs.render
        return lambda: render(kept, prediction) if render else kept.picture

    def _write(self, frame: Frame, picture: Picture) -> None:
        """Give the picture to every sink.

        :raises SinkError: if a sink fails; it gets no further frame.
        """
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
