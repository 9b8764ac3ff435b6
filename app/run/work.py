"""The run itself: model, sinks, predictor and lanes, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from app import build
from app.config import Settings
from app.machine.machine import machine, resident_mb
from app.streams import StreamPlan
from app.terminal.exit_codes import DONE, FAILED, WRONG
from app.terminal.stdio import Results
from pipelines.crew import Crew
from pipelines.errors import SinkError, Stopped
from pipelines.lane import Lane, LaneOptions
from pipelines.monitor import LatencyMonitor
from pipelines.predict.predictor import PredictorEvents
from pipelines.redact import redact
from pipelines.results import Results as Fanout
from pipelines.sinks.jsonl import JsonLines
from pipelines.sinks.sink import Sink
from pipelines.sinks.window import Window
from pipelines.sources.source import Source

log = logging.getLogger("watchline.run")


class Work:
    """The run itself, in a thread of its own: model, sinks, predictor, lanes."""

    def __init__(
        self, settings: Settings, streams: Sequence[StreamPlan], dead: dict[str, str], window: Window | None, results: Results
    ) -> None:
        self.monitor = LatencyMonitor(1e-3 * settings.budget_ms)
        self.error: BaseException | None = None
        self.stopped_s: float | None = None
        self._settings = settings
        self.streams = [s for s in streams if s.name not in dead]
        self._dead = dead
        self._window = window
        self._results = results
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._lanes: list[Lane] = []
        self._sinks: dict[str, list[Sink]] = {}
        self._fanout = Fanout(lambda consumer, error: self._lose_lines(error))
        self._lines: JsonLines | None = None
        self._lines_lost = False
        self._videos_lost: set[str] = set()
        self._videos: set[str] = set()
        self._model: build.Model | None = None
        self._crew: Crew | None = None
        self._paused = False
        self._at_once = 1
        """Files that are worked on at once."""
        self._began_s = time.monotonic()
        self.ready_s, self.ready_cpu_s = 0.0, 0.0
        """Monotonic time, and CPU time of this process, when its first source was about to be opened; 0 before."""
        self.thread = threading.Thread(target=self._run, name="run")

    def stop(self) -> None:
        """End soon. Any thread, also in a signal handler of the main thread."""
        if self.stopped_s is None:
            self.stopped_s = time.monotonic()
        self._stop.set()
        for lane in list(self._lanes):
            lane.stop()
        if self._model is not None:
            self._model.predictor.stop()

    def toggle_pause(self) -> None:
        """Pause all files, also those whose turn comes later, or let them go on. Any thread."""
        with self._lock:
            self._paused = not self._paused
            for lane in self._lanes:
                if not lane.ledger.live:
                    lane.pause() if self._paused else lane.resume()

    def fail(self, error: BaseException) -> None:
        """Something that belongs to the run has failed outside of it: end with this error."""
        self.error = self.error or error
        self.stop()

    def finish_outputs(self, within_s: float) -> None:
        """Finish the outputs while threads hang, any of which may hold an output's lock: each is closed in a thread of its own."""
        for lane in list(self._lanes):
            lane.publish()
        closes: list[Callable[[], object]] = [partial(self._fanout.close, self._stop)]
        closes += [partial(sink.close, False) for sinks in list(self._sinks.values()) for sink in sinks]
        threads = [threading.Thread(target=_closed, args=(close,), name="finish", daemon=True) for close in closes]
        end_s = time.monotonic() + within_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(end_s - time.monotonic(), 0))

    def hanging(self) -> list[str]:
        """Names of the threads that have not ended."""
        return self._crew.alive() if self._crew is not None else [self.thread.name]

    # Thread run.

    def _run(self) -> None:
        try:
            self._work()
        except Stopped:
            pass
        except BaseException as error:
            self.error = self.error or error

    def _work(self) -> None:
        events = PredictorEvents(self.monitor.batch, self.stop)
        if self._settings.precision == "int8":
            from app.calibrate.calibration import ensure

            ensure(self._settings, self.streams, self._stop)
        self._model = model = build.make_model(self._settings, events, build.Load.of(self.streams, self._settings))
        if self._stop.is_set():
            return
        log.info("model %s: %s", self._settings.model, model.why)
        self._lines = build.make_lines(self._settings, self._results)
        with ExitStack() as stack:
            stack.callback(self._close_sinks)
            if self._window is not None or any(s.output is not None for s in self.streams):
                build.find_fonts(model, self.streams, lambda: not self._stop.is_set())
            stack.enter_context(model.predictor)
            model.keep_profile()
            self.ready_s, self.ready_cpu_s = time.monotonic(), time.process_time()
            log.info("ready after %.1f s", self.ready_s - self._began_s)
            if self._lines is not None:
                self._fanout.subscribe(self._lines)
            stack.callback(self._close_consumers)
            self._crew = stack.enter_context(Crew(self.stop))
            self._start_lanes(self._crew, model)
        if model.predictor.error is not None:
            raise model.predictor.error

    def _start_lanes(self, crew: Crew, model: build.Model) -> None:
        """Cameras have a thread each from now on; files share as many as are to be worked on at once."""
        paced = self._settings.realtime
        files = deque(s for s in self.streams if s.stored and not paced)
        others = [s for s in self.streams if s not in files]
        jobs = self._settings.jobs or build.cores()
        # Files that were named one by one are wanted together; only what a folder holds waits for its turn.
        named = sum(not s.found for s in files)
        at_once = min(max(jobs, named), len(files))
        self._at_once = at_once + sum(s.kind in ("file", "network") for s in others)
        for stream in others:
            crew.start(f"lane:{stream.name}", lambda s=stream: self._run_lane(s, crew, model))  # type: ignore[misc]
        for k in range(at_once):
            crew.start(f"files:{k}", lambda: self._run_files(files, crew, model))

    def _run_files(self, files: deque[StreamPlan], crew: Crew, model: build.Model) -> None:
        while not self._stop.is_set():
            try:
                stream = files.popleft()
            except IndexError:
                return
            threading.current_thread().name = f"lane:{stream.name}"
            if not self._pointless(stream):
                self._run_lane(stream, crew, model)

    def _run_lane(self, stream: StreamPlan, crew: Crew, model: build.Model) -> None:
        threads = build.decoders(self._at_once)
        lane = self._lane(stream, build.make_source(stream, self._settings, self._stop, threads=threads), model)
        lane.run(crew)
        self._close_lane(lane)

    def _lane(self, stream: StreamPlan, source: Source, model: build.Model) -> Lane:
        live = source.live
        recording = live and not stream.stored
        sinks = build.make_sinks(stream, live=recording, threads=1 if live else build.encoders(self._at_once, self._settings))
        outputs = build.outputs(stream, sinks, self._window, model, live=live, topk=self._settings.topk)
        outputs = replace(outputs, sink_lost=lambda: self._lose_video(stream))
        s = self._settings
        ledger = self.monitor.open(stream.name, live=live)
        lane = Lane(
            stream.name,
            source,
            model.predictor,
            outputs,
            ledger,
            self._fanout,
            LaneOptions(s.stride, s.max_fps, s.max_frames),
        )
        with self._lock:
            self._sinks[stream.name] = sinks
            self._lanes.append(lane)
            if self._paused and not live:
                lane.pause()
        if self._stop.is_set():
            lane.stop()
        if self._pointless(stream):
            lane.abandon()
        return lane

    def _lose_video(self, stream: StreamPlan) -> None:
        """Its stream goes on where something else is wanted of it."""
        self._videos_lost.add(stream.name)
        self._abandon_pointless()

    def _lose_lines(self, error: SinkError) -> None:
        """So do all streams: a pipe to `head` ends the run if it was all that was wanted."""
        self._lines_lost = True
        self.monitor.fault(str(error))
        self._abandon_pointless()

    def _abandon_pointless(self) -> None:
        pointless = {s.name for s in self.streams if self._pointless(s)}
        with self._lock:
            lanes = [lane for lane in self._lanes if lane.name in pointless]
        for lane in lanes:
            lane.abandon()

    def _pointless(self, stream: StreamPlan) -> bool:
        """Whether every output that was asked for of a stream has been lost."""
        if not self._lines_lost and stream.name not in self._videos_lost:
            return False
        lines = self._lines is not None and not self._lines_lost
        video = stream.output is not None and stream.name not in self._videos_lost
        return not (lines or video or self._window is not None or self._settings.report is not None)

    def _close_lane(self, lane: Lane) -> None:
        """A file's outputs are finished when it ends, not when the last of a thousand does."""
        with self._lock:
            sinks = self._sinks.pop(lane.name, [])
        for sink in sinks:
            try:
                sink.close(lane.complete)
            except SinkError as error:
                self._videos_lost.add(lane.name)
                lane.ledger.fault(str(error))
            if sink.written:
                self._videos.add(lane.name)

    def _close_consumers(self) -> None:
        for name in self._fanout.close(self._stop):
            self.monitor.fault(f"{name} does not end")

    def _close_sinks(self) -> None:
        for lane in self._lanes:
            self._close_lane(lane)

    # After the end.

    def exit_code(self) -> int:
        """What became of the streams."""
        lanes = self._lanes
        if lanes and all(lane.error is not None and lane.ledger.captured == 0 for lane in lanes):
            return WRONG
        faults = self._dead or self.monitor.faults or any(lane.ledger.faults for lane in lanes)
        return FAILED if faults else DONE

    def written(self, *, whole: bool) -> list[Path]:
        """The annotated videos that this run wrote: those that hold all that was shown, or those whose writing failed."""
        names = self._videos - self._videos_lost if whole else self._videos & self._videos_lost
        return [s.output for s in self.streams if s.output is not None and s.name in names]

    def untouched(self) -> list[Path]:
        """Files in the places of those that it did not begin, which must not pass for its results."""
        begun = self._videos | self._videos_lost
        return [s.output for s in self.streams if s.output is not None and s.name not in begun and s.output.exists()]

    def wrote_lines(self) -> bool:
        """Whether there are JSON lines of this run."""
        return self._lines is not None and self._lines.written > 0

    def lines_whole(self) -> bool:
        """Whether nothing failed in writing them."""
        return not self._lines_lost

    def report(self) -> dict[str, Any]:
        """The whole report."""
        report = self.monitor.report()
        # Streams whose turn had not come when the run was stopped.
        report["streams"] |= {s.name: empty_stream() for s in self.streams if s.name not in report["streams"]}
        for name, message in self._dead.items():
            report["streams"][name] = empty_stream(message)
        engine = self._model.engine if self._model else None
        report["device"]["memory_mb"] = round(self._model.memory_mb() if self._model else resident_mb(), 1)
        report["budget_ms"] = self._settings.budget_ms
        report["warmup_s"] = round(self._model.predictor.warmup_s, 3) if self._model else None
        report["ready_s"] = round(self.ready_s - self._began_s, 3) if self.ready_s else None
        report["engine"] = {
            "name": engine.name if engine else None,
            "precision": engine.precision if engine else None,
            "device": engine.device if engine else None,
            "model": self._settings.model,
            "why": self._model.why if self._model else None,
            "profile_ms": self._model.predictor.profile.as_ms() if self._model and self.ready_s else {},
            "workers": self._model.workers() if self._model else [],
        }
        if self.error is not None:
            report["errors"].append(redact(str(self.error) or type(self.error).__name__))
        report["machine"] = machine()
        return report


def _closed(close: Callable[[], object]) -> None:
    try:
        close()
    except SinkError as error:
        log.error("%s", error)


def empty_stream(*faults: str) -> dict[str, Any]:
    """The report of a stream that never began."""
    ledger = LatencyMonitor(0.0).open("", live=False)
    ledger.faults += faults
    return ledger.report()
