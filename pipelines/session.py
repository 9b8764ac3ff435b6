"""START HERE for the whole: one model, its predictor, the monitor, and streams that come and go.

    with Session("lite0") as session:
        session.subscribe(print)
        session.add(StreamSpec.of("door", "rtsp://camera/door"))
        session.wait()

    lane:NAME, decode:NAME    two threads for each stream (`lane.py`)
    predict:…, complete:…     the predictor's
    consume:NAME              one for each consumer (`results.py`)

Every method may be called from any thread while the session runs, consumers' threads included. The model is sized for "up to N
streams", an option, so a stream that is added later shares batches like one that was there at the start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from pipelines.crew import Crew
from pipelines.errors import SinkError, Stopped, UsageError, WatchlineError
from pipelines.frame import Result
from pipelines.lane import Lane, LaneOptions, Outputs
from pipelines.media import patches
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import SessionReport
from pipelines.monitor.snapshots import SessionSnapshot
from pipelines.predict.interface import Predictor
from pipelines.predict.predictor import PredictorEvents
from pipelines.results import Callback, Results
from pipelines.sinks.sink import Consumer, Sink
from pipelines.sources.make_source import make_source
from pipelines.sources.source import Source
from pipelines.sources.stream_spec import StreamSpec

log = logging.getLogger("watchline.session")


class Model(Protocol):
    """The model as a session uses it: its predictor, not yet entered, and the store that keeps its measured times."""

    @property
    def predictor(self) -> Predictor: ...
    def keep_profile(self) -> None: ...


M = TypeVar("M", bound=Model)
MakeModel = Callable[[PredictorEvents], M]
"""Loads, converts or finds the model; may take seconds. Thread: that which enters the session."""
MakeOutputs = Callable[[Source], Outputs]
"""The outputs of a stream, once its source is known (live or stored). Thread: lane:NAME."""
MakeSource = Callable[[threading.Event], Source]
"""The source of a stream; the event ends a wait for its address. Thread: lane:NAME."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended. complete: its source came to its own end, whole; error: why the source ended early, or why the stream
    could not begin; written, lost: whether a sink accepted frames, and whether one failed."""

    name: str
    complete: bool
    error: WatchlineError | None
    captured: int
    faults: tuple[str, ...]
    written: bool
    lost: bool


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """budget_s: latency budget of streams without one of their own. max_streams: a model that is given by its name is sized for
    up to so many live streams; more are possible, but share batches of that size. keep_going: a stream goes on when all its
    outputs have failed, since its figures are wanted. ended: called in the stream's thread at the end of each stream, before
    `wait` can return; it may add further streams."""

    budget_s: float = 0.050
    max_streams: int = 16
    keep_going: bool = False
    ended: Callable[[StreamEnd], None] = lambda end: None


WHY_NOT = {
    "new": "the session was not entered yet; enter it first",
    "open": "the session was stopped",
    "left": "the session was left; make a new one",
}


@dataclass(slots=True, eq=False)
class _Stream:
    """One stream of the session. Guarded by the session's lock, but for `stop`."""

    spec: StreamSpec
    make_source: MakeSource
    make_outputs: MakeOutputs
    stop: threading.Event = field(default_factory=threading.Event)
    paused: bool = False
    live: bool | None = None
    """Known when its source is made."""
    lane: Lane | None = None
    ledger: StreamLedger | None = None
    outputs: Outputs = field(default_factory=Outputs)
    sink_lost: bool = False
    thread: int | None = None
    """Identifier of the stream's thread while it runs."""
    removed: bool = False
    """Removed in its own thread: forget it at its end."""
    ended: bool = False

    @property
    def name(self) -> str:
        return self.spec.name

    def end(self) -> None:
        """Read no further frame."""
        self.stop.set()
        if self.lane is not None:
            self.lane.stop()


class Session(Generic[M]):
    """Used as `with session:`; entering returns when the model is warm, leaving ends all streams and closes all outputs.

    :raises Stopped: from entering, if `stop` was called before the model was warm.
    :raises UsageError: from entering, if the model cannot be had.
    """

    def __init__(self, model: str | MakeModel[M] = "lite0", options: SessionOptions | None = None) -> None:
        """model: a model's name, see `build_predictor`; or a function that makes the model when the session is entered."""
        self.options = options or SessionOptions()
        self.monitor = LatencyMonitor(self.options.budget_s)
        self.results = Results(self._consumer_lost)
        self.stopping = threading.Event()
        """Set by `stop`."""
        self.stopped_s: float | None = None
        """When `stop` was called first (monotonic)."""
        self.began_s = time.monotonic()
        self.ready_s = self.ready_cpu_s = 0.0
        """Monotonic time, and CPU time of this process, when the model was warm; 0 before."""
        self._make_model: MakeModel[Any] = self._named(model) if isinstance(model, str) else model
        self._model: M | None = None
        self._changed = threading.Condition()
        self._streams: dict[str, _Stream] = {}
        self._crew = Crew(self.stop)
        self._consumers: list[Consumer] = []
        """Subscribed before the session was entered."""
        self._state: Literal["new", "open", "left"] = "new"
        self._files_paused = False

    def _named(self, model: str) -> MakeModel[Any]:
        """Makes a model of this name with the default options of the library."""
        from pipelines.predict.models.builder import build_predictor
        from pipelines.predict.models.model_options import Load, ModelOptions

        options = ModelOptions(budget_s=self.options.budget_s, load=Load(cameras=self.options.max_streams))
        return lambda events: build_predictor(model, options, events)

    # Life cycle.

    def __enter__(self) -> Session[M]:
        if self._model is not None:
            raise RuntimeError("a session is entered once; make a new one")
        patches.install()
        model = self._model = self._make_model(PredictorEvents(self.monitor.batch, self.stop))
        if self.stopping.is_set():
            raise Stopped("the session was stopped before its model was ready")
        model.predictor.__enter__()
        try:
            self._begin(model)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _begin(self, model: Model) -> None:
        model.keep_profile()
        self.ready_s, self.ready_cpu_s = time.monotonic(), time.process_time()
        log.info("ready after %.1f s", self.ready_s - self.began_s)
        with self._changed:
            for consumer in self._consumers:
                self.results.subscribe(consumer)
            self._consumers.clear()
            self._state = "open"

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.stop()
        with self._changed:
            self._state = "left"
        self._end_streams()
        predictor = self.model.predictor
        try:
            self._crew.join()
            for name in self.results.close(lambda: self.stopped_s):
                self.monitor.fault(f"{name} does not end")
            self.results.join()
        except BaseException:  # a second Ctrl-C
            self.stop()
            raise
        finally:
            predictor.__exit__(kind, error or self._crew.error, trace)
        found = self._crew.error or predictor.error
        # After an error of a thread, calls such as `add` raise Stopped: the error of the thread is the cause.
        if found is not None and (error is None or isinstance(error, Stopped)):
            raise found

    def stop(self) -> None:
        """End soon: frames that wait are dropped as `shutdown`, consumers get one second for the rest. Any thread, also in a
        signal handler."""
        if self.stopped_s is None:
            self.stopped_s = time.monotonic()
        self.stopping.set()
        self._end_streams()
        if self._model is not None:
            self._model.predictor.stop()

    def _end_streams(self) -> None:
        # Without the lock, which the thread that a signal handler interrupts may hold.
        for stream in list(self._streams.values()):
            stream.end()

    @property
    def loaded(self) -> bool:
        """Whether the model is loaded."""
        return self._model is not None

    @property
    def model(self) -> M:
        """The model, once it is loaded.

        :raises RuntimeError: if it is not.
        """
        if self._model is None:
            raise RuntimeError("the session's model is not loaded yet; enter the session first")
        return self._model

    def finish_results(self) -> None:
        """Hand all results on that hanging lanes still collect, and close the consumers: for a process that ends."""
        for stream in list(self._streams.values()):
            if stream.lane is not None:
                stream.lane.publish()
        self.results.close(lambda: self.stopped_s)

    def hanging(self) -> list[str]:
        """Names of the streams' threads that still run; without any, those of the consumers."""
        return self._crew.alive() or self.results.running()

    # Streams.

    def add(
        self,
        spec: StreamSpec,
        outputs: MakeOutputs | Outputs | None = None,
        *,
        source: MakeSource | None = None,
        decoder_threads: int = 1,
    ) -> None:
        """Begin with a stream; returns at once. A name can be used again once its stream has ended or was removed.

        outputs: where its pictures go; by default nowhere. source: makes its source; by default it follows from the spec.
        decoder_threads: of a file.

        :raises Stopped: if the session is not entered, stops or was left.
        :raises UsageError: if a stream of this name is open, or `spec` is none.
        """
        if not isinstance(spec, StreamSpec):
            raise UsageError(f"Session.add takes a StreamSpec, got {spec!r}; make one with StreamSpec.of(name, source)")
        make_outputs = outputs if callable(outputs) else lambda made: outputs or Outputs()
        make = source or (lambda stop: make_source(spec, stop, threads=decoder_threads))
        stream = _Stream(spec, make, make_outputs)
        with self._changed:
            if self._state != "open" or self.stopping.is_set():
                raise Stopped(f"no stream can be added: {WHY_NOT[self._state]}")
            known = self._streams.get(spec.name)
            if known is not None and not known.ended:
                raise UsageError(f"a stream named {spec.name!r} is open; remove it first, or give the new one another name")
            if known is not None:
                self._retire(known)
            self._streams[spec.name] = stream
            try:
                self._crew.start(f"lane:{spec.name}", lambda: self._run(stream))
            except RuntimeError:  # the system allows no further thread
                del self._streams[spec.name]
                raise
        if self.stopping.is_set():
            stream.end()  # `stop`, which takes no lock, may have missed it

    def remove(self, name: str) -> None:
        """End a stream, finish its frames, close its outputs, and keep only its final figures.

        Returns when that is done. In the stream's own thread, such as in `SessionOptions.ended`, it returns at once. Do not
        call it in the window's thread, which must draw the last frames meanwhile.

        :raises UsageError: if there is no such stream.
        """
        stream = self._find(name)
        stream.end()
        with self._changed:
            if threading.get_ident() == stream.thread:
                stream.removed = True
                return
            self._changed.wait_for(lambda: stream.ended)
            self._forget(stream)

    def _forget(self, stream: _Stream) -> None:
        """Remove an ended stream from the session. With the lock held."""
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]
            self._retire(stream)

    def pause(self, name: str) -> None:
        """Predict no further frame of a stream until `resume`; see `Lane.pause`.

        :raises UsageError: if there is no such stream.
        """
        self._set_paused(self._find(name), True)

    def resume(self, name: str) -> None:
        """End the pause of a stream.

        :raises UsageError: if there is no such stream.
        """
        self._set_paused(self._find(name), False)

    def pause_files(self, paused: bool) -> None:
        """Pause every stream that is not live, also those that are added later; or end that pause.

        A stream that was paused by its name stays paused."""
        with self._changed:
            self._files_paused = paused
            for stream in self._streams.values():
                self._apply_pause(stream)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no stream is open; False if one still is after `timeout_s`.

        :raises RuntimeError: if the session was not entered.
        """
        if self._state == "new":
            raise RuntimeError(WHY_NOT["new"])
        with self._changed:
            return self._changed.wait_for(lambda: all(s.ended for s in self._streams.values()), timeout_s)

    def open_sinks(self) -> list[Sink]:
        """Sinks of the streams that have not ended, to be finished by a process that ends while threads hang."""
        return [sink for stream in list(self._streams.values()) if not stream.ended for sink in stream.outputs.sinks]

    def _find(self, name: str) -> _Stream:
        with self._changed:
            found = self._streams.get(name)
        if found is None:
            raise UsageError(f"no stream named {name!r}; there are: {', '.join(self._streams) or 'none'}")
        return found

    def _set_paused(self, stream: _Stream, paused: bool) -> None:
        with self._changed:
            stream.paused = paused
            self._apply_pause(stream)

    def _apply_pause(self, stream: _Stream) -> None:
        """Pause the lane, or let it go on. With the lock held."""
        if stream.lane is not None:
            paused = stream.paused or (self._files_paused and not stream.live)
            stream.lane.pause() if paused else stream.lane.resume()

    def _retire(self, stream: _Stream) -> None:
        """Forget all of an ended stream but its final figures. With the lock held."""
        if stream.ledger is not None:
            self.monitor.retire(stream.ledger)
        for screen in stream.outputs.screens:
            screen.forget(stream.name)

    # Thread lane:NAME.

    def _run(self, stream: _Stream) -> None:
        stream.thread = threading.get_ident()
        try:
            try:
                lane = self._lane(stream, stream.make_source(stream.stop))
            except WatchlineError as error:
                self._not_begun(stream, error)
                return
            try:
                lane.run(self._crew)
            finally:
                self._finish(stream, lane)
        finally:
            with self._changed:
                stream.ended = True
                stream.lane = None
                stream.thread = None
                stream.outputs = Outputs(screens=stream.outputs.screens)
                if stream.removed:
                    self._forget(stream)
                self._changed.notify_all()

    def _lane(self, stream: _Stream, source: Source) -> Lane:
        spec, options = stream.spec, stream.spec.options
        budget_s = None if options.budget_ms is None else 1e-3 * options.budget_ms
        ledger = stream.ledger = self.monitor.open(spec.name, live=source.live, budget_s=budget_s)
        outputs = replace(stream.make_outputs(source), sink_lost=lambda: self._sink_lost(stream))
        lane = Lane(
            spec.name,
            source,
            self.model.predictor,
            outputs,
            ledger,
            self.results,
            LaneOptions(options.stride, options.max_fps, options.max_frames, budget_s, spec.regions),
        )
        with self._changed:
            stream.lane, stream.outputs, stream.live = lane, outputs, source.live
            self._apply_pause(stream)
        if stream.stop.is_set() or self.stopping.is_set():
            lane.stop()
        self._abandon_fruitless()
        return lane

    def _not_begun(self, stream: _Stream, error: WatchlineError) -> None:
        """Report the end of a stream without a source or outputs."""
        stream.ledger = stream.ledger or self.monitor.open(stream.name, live=not stream.spec.stored)
        stream.ledger.fault(str(error))
        stream.ledger.ended = True
        self.options.ended(StreamEnd(stream.name, False, error, 0, tuple(stream.ledger.faults), False, False))

    def _finish(self, stream: _Stream, lane: Lane) -> None:
        """Close the stream's outputs and report its end."""
        with ExitStack() as closing:  # closes all of them, whatever error one raises
            for sink in stream.outputs.sinks:
                closing.callback(self._close, stream, lane, sink)
        written = any(sink.written for sink in stream.outputs.sinks)
        ledger = lane.ledger
        faults = tuple(ledger.faults)
        self.options.ended(
            StreamEnd(stream.name, lane.complete, lane.error, ledger.captured, faults, written, stream.sink_lost)
        )

    def _close(self, stream: _Stream, lane: Lane, sink: Sink) -> None:
        try:
            sink.close(lane.complete)
        except SinkError as error:
            stream.sink_lost = True
            lane.ledger.fault(str(error))

    # Consumers, and outputs that fail.

    def subscribe(self, consumer: Consumer | Callable[[Result], Any], name: str | None = None) -> Consumer:
        """Give a consumer, or a function, every result from now on, in a thread of its own; returns the consumer.

        name: of a function, for its thread and its figures.

        :raises Stopped: if the session was left.
        :raises UsageError: if it is neither a consumer nor a function.
        """
        if not isinstance(consumer, Consumer) and not callable(consumer):
            raise UsageError(f"Session.subscribe takes a Consumer or a function of one Result, got {consumer!r}")
        made = consumer if isinstance(consumer, Consumer) else Callback(consumer, name)
        with self._changed:
            if self._state == "new":
                self._consumers.append(made)
            else:
                self.results.subscribe(made)
        return made

    def unsubscribe(self, consumer: Consumer) -> None:
        """Close a consumer once it has taken its waiting results. Returns at once.

        :raises ValueError: if it is not subscribed.
        """
        self.results.unsubscribe(consumer)

    def _consumer_lost(self, consumer: Consumer, error: SinkError) -> None:
        """Streams go on without the consumer if anything else is wanted of them. Thread: consume:NAME."""
        self.monitor.fault(str(error))
        self._abandon_fruitless()

    def _sink_lost(self, stream: _Stream) -> None:
        """Thread: the stream's lane."""
        stream.sink_lost = True
        self._abandon_fruitless()

    def _abandon_fruitless(self) -> None:
        """End the streams of which every output has failed."""
        with self._changed:
            lanes = [s.lane for s in self._streams.values() if s.lane is not None and self._fruitless(s)]
        for lane in lanes:
            lane.abandon()

    def _fruitless(self, stream: _Stream) -> bool:
        if self.options.keep_going or not (stream.sink_lost or self.results.failed):
            return False
        return not (self.results.alive or stream.outputs.screens or (stream.lane is not None and stream.lane.has_sinks))

    # Figures.

    def report(self) -> SessionReport:
        """Everything that was measured so far."""
        return self.snapshot().report()

    def snapshot(self) -> SessionSnapshot:
        """The same with histograms, to be merged with the snapshots of other sessions (`monitor.merged`)."""
        return replace(self.monitor.snapshot(), consumers=self.results.report())
