"""The streams of one plan in a session, in the thread `run`, and their outcome."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from app import build
from app.config import Settings
from app.machine.machine import machine
from app.machine.memory import memory_mb
from app.streams import StreamPlan
from app.terminal.exit_codes import DONE, FAILED, WRONG
from app.terminal.stdio import StandardOutput
from pipelines.cores import cores
from pipelines.errors import SinkError, Stopped
from pipelines.lane import Outputs
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.monitor.reports import ConsumerReport, EngineReport, RunReport, SessionReport, StreamReport
from pipelines.predict.models.builder import Model
from pipelines.predict.predictor import PredictorEvents
from pipelines.process import resident_mb
from pipelines.redact import redact
from pipelines.session import Session, SessionOptions, StreamEnd
from pipelines.sinks.window import Window
from pipelines.sources.source import Source

log = logging.getLogger("watchline.run")


class Job:
    """One run. Cameras have a thread each; files share as many as `--jobs` says, the next one begins when one ends."""

    def __init__(
        self,
        settings: Settings,
        streams: Sequence[StreamPlan],
        dead: dict[str, str],
        window: Window | None,
        results: StandardOutput,
    ) -> None:
        """dead: streams that cannot be opened, and why."""
        self.error: BaseException | None = None
        self.streams = [s for s in streams if s.name not in dead]
        self.session = Session(
            self._make_model,
            SessionOptions(1e-3 * settings.budget_ms, keep_going=settings.report is not None, ended=self._ended),
        )
        self._settings = settings
        self._dead = dead
        self._window = window
        self._results = results
        self._lock = threading.Lock()
        self._ends: dict[str, StreamEnd] = {}
        self._lines: build.JsonLines | None = None
        self._files = deque(s for s in self.streams if s.stored and not settings.realtime)
        self._others = [s for s in self.streams if s not in self._files]
        self._at_once = self._files_at_once()
        self._paused = False
        self.thread = threading.Thread(target=self._run, name="run")

    @property
    def monitor(self) -> LatencyMonitor:
        return self.session.monitor

    @property
    def stopped_s(self) -> float | None:
        """When `stop` was called first (monotonic)."""
        return self.session.stopped_s

    def stop(self) -> None:
        """End soon. Any thread, also in a signal handler of the main thread."""
        self.session.stop()

    def fail(self, error: BaseException) -> None:
        """End with an error of a part of the run outside of the session."""
        self.error = self.error or error
        self.stop()

    def toggle_pause(self) -> None:
        """Pause all files, also those that begin later, or let them go on. Any thread."""
        self._paused = not self._paused
        self.session.pause_files(self._paused)

    def finish_outputs(self, within_s: float) -> None:
        """Finish the outputs while threads hang that may hold their locks: each is closed in a thread of its own."""
        closes: list[Callable[[], object]] = [self.session.finish_results]
        closes += [partial(sink.close, False) for sink in self.session.open_sinks()]
        threads = [threading.Thread(target=_closed, args=(close,), name="finish", daemon=True) for close in closes]
        end_s = time.monotonic() + within_s
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(end_s - time.monotonic(), 0))

    def hanging(self) -> list[str]:
        """Names of the threads that have not ended."""
        return self.session.hanging() or [self.thread.name]

    # Thread run.

    def _run(self) -> None:
        try:
            with self.session as session:
                self._lines = build.make_lines(self._settings, self._results, session.model.task)
                if self._lines is not None:
                    session.subscribe(self._lines)
                self._add_all()
                session.wait()
        except Stopped:
            pass
        except BaseException as error:
            self.error = self.error or error

    def _make_model(self, events: PredictorEvents) -> Model:
        settings = self._settings
        if settings.precision == "int8":
            from app.calibrate.calibration import ensure

            ensure(settings, self.streams, self.session.stopping)
        model = build.make_model(settings, events, build.load_of(self.streams, settings))
        log.info("model %s: %s", settings.model, model.why)
        if not self.session.stopping.is_set() and (self._window is not None or any(s.output for s in self.streams)):
            build.find_fonts(model, self.streams, lambda: not self.session.stopping.is_set())
        return model

    def _files_at_once(self) -> int:
        """Files that are worked on at once. Files that were named one by one are wanted together; those of a folder wait for
        their turn."""
        named = sum(not s.found for s in self._files)
        return min(max(self._settings.jobs or cores(), named), len(self._files))

    def _add_all(self) -> None:
        for stream in self._others:
            self._add(stream)
        for _ in range(self._at_once):
            self._add_file()

    def _add_file(self) -> None:
        """Begin with the next file, if there is one."""
        try:
            stream = self._files.popleft()
        except IndexError:
            return
        if not self.lines_whole() and not (stream.output or self._window or self._settings.report):
            return  # every output that was asked for is lost
        self._add(stream)

    def _add(self, stream: StreamPlan) -> None:
        """:raises Stopped: if the session stops."""
        decoding = self._at_once + sum(s.spec.kind in ("file", "network") for s in self._others)
        threads = build.decoders(decoding)
        self.session.add(stream.spec, partial(self._outputs, stream), decoder_threads=threads)

    def _outputs(self, stream: StreamPlan, source: Source) -> Outputs:
        live = source.live
        threads = 1 if live else build.encoders(self._at_once, stream.spec.options)
        sinks = build.make_sinks(stream, live=live and not stream.stored, threads=threads)
        return build.outputs(stream, sinks, self._window, self.session.model, live=live, topk=self._settings.topk)

    # Threads lane:NAME.

    def _ended(self, end: StreamEnd) -> None:
        with self._lock:
            self._ends[end.name] = end
        with contextlib.suppress(Stopped):
            self._add_file()

    # After the end.

    def exit_code(self) -> int:
        """The exit code that follows from the outcome of the streams."""
        ends = list(self._ends.values())
        if ends and all(end.error is not None and end.captured == 0 for end in ends):
            return WRONG
        faults = self._dead or self.monitor.faults or any(end.faults for end in ends)
        return FAILED if faults else DONE

    def written(self, *, whole: bool) -> list[Path]:
        """The annotated videos that this run wrote: the complete ones, or the incomplete ones."""
        return [
            s.output for s in self.streams if s.output and (end := self._ends.get(s.name)) and end.written and end.lost != whole
        ]

    def untouched(self) -> list[Path]:
        """Older files in the places of videos that were not begun; they must not pass for results of this run."""
        begun = {name for name, end in self._ends.items() if end.written or end.lost}
        return [s.output for s in self.streams if s.output is not None and s.name not in begun and s.output.exists()]

    def lines_written(self) -> int:
        """JSON lines of this run in their output."""
        return 0 if self._lines is None else self._lines.written

    def lines_report(self) -> ConsumerReport | None:
        """Figures of the JSON lines; None if there are none."""
        lines = self._lines
        return None if lines is None else next((c for c in self.session.results.report() if c.name == lines.name), None)

    def lines_whole(self) -> bool:
        """Whether every result has its JSON line."""
        return self._lines not in self.session.results.failed

    def report(self) -> RunReport:
        """The whole report."""
        session, settings = self.session, self._settings
        model = session.model if session.loaded else None
        return RunReport(
            session=self._session_report(model),
            engine=_engine_report(settings.model, model, warm=session.ready_s > 0),
            budget_ms=settings.budget_ms,
            warmup_s=round(model.predictor.warmup_s, 3) if model else None,
            ready_s=round(session.ready_s - session.began_s, 3) if session.ready_s else None,
            machine=machine(),
        )

    def _session_report(self, model: Model | None) -> SessionReport:
        report = self.session.report()
        # Files that still waited for their turn when the run was stopped.
        waiting = {s.name: StreamReport(s.name) for s in self.streams if s.name not in report.streams}
        dead = {name: StreamReport(name, errors=(message,)) for name, message in self._dead.items()}
        error = self.error
        errors = () if error is None else (redact(str(error) or type(error).__name__),)
        memory = round(memory_mb(model) if model else resident_mb(), 1)
        # The JSON lines are an output of the run like a video: their loss is among the errors.
        lines = self._lines.name if self._lines is not None else None
        return replace(
            report,
            streams={**report.streams, **waiting, **dead},
            device=replace(report.device, memory_mb=memory),
            errors=(*report.errors, *errors),
            consumers=tuple(c for c in report.consumers if c.name != lines),
        )


def _engine_report(asked: str, model: Model | None, *, warm: bool) -> EngineReport:
    """asked: the model's name as given."""
    if model is None:
        return EngineReport(asked)
    engine, profile = model.engine, model.predictor.profile.as_ms() if warm else {}
    return EngineReport(asked, engine.name, engine.precision, engine.device, model.why, profile, model.workers())


def _closed(close: Callable[[], object]) -> None:
    try:
        close()
    except SinkError as error:
        log.error("%s", error)
