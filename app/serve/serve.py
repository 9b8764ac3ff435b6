"""`watchline serve`: start, log the address, serve, drain, end.

main thread     handles signals, waits, ends the process if a thread hangs
serve           model -> predictor -> ready ... stop -> drain -> end
serve:http      the event loop with all of HTTP; it answers /live from the start
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from app import build
from app.config import Settings
from app.http.access import Access
from app.http.server import HttpServer, most_connections, quiet_libraries
from app.machine.memory import gpu_memory_share, memory_limit_mb, memory_mb
from app.serve import serve_options as serving
from app.serve.classifier import Classifier
from app.serve.handler import ServiceLimits
from app.serve.routes import OPEN_PATHS, make_app
from app.serve.schemas import ModelReport
from app.serve.serve_options import ServeOptions
from app.serve.service import Service
from app.terminal.console import log_error
from app.terminal.exit_codes import DONE, FAILED
from app.terminal.supervise import wait_for_end
from app.terminal.terminal import Terminal
from pipelines.cores import cores
from pipelines.crew import Crew
from pipelines.errors import EngineLost, Stopped, UsageError
from pipelines.predict.models.builder import Model
from pipelines.predict.predictor import PredictorEvents

log = logging.getLogger("watchline.serve")

DRAIN_S = 3.0
"""Time for requests in flight after a stop."""
SERVE_STOP_S = 4.7
"""Time for a stop before hanging threads are left behind: the process ends within 5 s."""
MOST_TOPK = 20


def serve(settings: Settings, options: ServeOptions, terminal: Terminal) -> int:
    """Serve until a signal comes. Returns the exit code.

    :raises UsageError: if the service cannot start.
    """
    serving.check(options)
    token = serving.token(options)
    server = Server(settings, options, token)
    with terminal.signals.stopping(server.stop):
        server.run(terminal)
    if isinstance(server.error, UsageError):
        raise server.error
    if server.error is not None:
        log_error(log, server.error, verbose=settings.verbose)
    return terminal.signals.code(DONE if server.error is None else FAILED)


MakePool = Callable[[Settings, ServeOptions, PredictorEvents], Model]


def make_model(settings: Settings, options: ServeOptions, events: PredictorEvents) -> Model:
    """The model of a service, with a pool of worker processes."""
    return build.make_pool(settings, options.workers, events, batching=options.batching)


class Server:
    """The service from its start to its end, in a thread of its own."""

    def __init__(
        self, settings: Settings, options: ServeOptions, token: bytes | None = None, make: MakePool = make_model
    ) -> None:
        """:raises UsageError: if the service cannot listen on its address."""
        self._make = make
        self.error: BaseException | None = None
        self._settings = replace(settings, topk=max(settings.topk, MOST_TOPK))
        self._options = options
        limits = ServiceLimits(
            options.capacity, options.request_timeout, options.max_upload, settings.topk, self._settings.topk
        )
        self.service = service = Service(limits)
        service.wanted = options.workers
        self.listener = serving.listen(options)
        self.url = serving.url_of(self.listener)
        app = Access(make_app(service), token, OPEN_PATHS, lambda: service.metrics.request("unauthorized"))
        self._http = HttpServer(app, self.listener)
        service.connections = lambda: self._http.connections
        service.most_connections = most_connections()
        self._stopping = threading.Event()
        self.stopped_s: float | None = None
        self._predictor: Any = None
        self._warming: Any = None
        """The predictor during its warm-up: a stop then ends it at once, without a drain."""
        self.ready = threading.Event()
        """Set when the service is ready, or has ended before."""
        self._crew = Crew(self.stop)
        self.thread = threading.Thread(target=self._run, name="serve")

    def stop(self) -> None:
        """Drain and end. Any thread, also in a signal handler."""
        if self.stopped_s is None:
            self.stopped_s = time.monotonic()
        self._stopping.set()
        warming = self._warming
        if warming is not None:
            warming.stop()

    def hanging(self) -> list[str]:
        """Names of the threads that have not ended."""
        return self._crew.alive() or [self.thread.name]

    def run(self, terminal: Terminal) -> None:
        """Serve until the service has ended. Thread: main."""
        if self._options.no_auth and not serving.is_loopback(self._options.host):
            log.warning("--no-auth: all clients that reach %s may use it", self.url)
        quiet_libraries(logging.DEBUG if self._settings.verbose else logging.ERROR)
        self.thread.start()
        wait_for_end(self, terminal.signals, SERVE_STOP_S)

    # Thread serve.

    def _run(self) -> None:
        try:
            with self._crew:
                self._crew.start("serve:http", self._http.run)
                try:
                    self._serve()
                finally:
                    self._http.stop()
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.ready.set()
            self.stop()

    def _serve(self) -> None:
        began_s = time.monotonic()
        log.info("listening on %s; loading the model", self.url)
        service, options = self.service, self._options
        events = PredictorEvents(service.batch, self._failed)
        model = self._make(self._settings, options, events)
        self._predictor = self._warming = predictor = model.predictor
        if self._stopping.is_set():  # a later stop reaches the predictor
            return
        log.info("model %s: %s", self._settings.model, model.why)
        with ExitStack() as stack:
            stack.enter_context(predictor)
            self._warming = None
            model.keep_profile()
            self._open(stack, model)
            service.state = "ready"
            log.info("ready after %.1f s on %s", time.monotonic() - began_s, self.url)
            self.ready.set()
            self._stopping.wait()
            self._drain(service)
        if predictor.error is not None:
            raise predictor.error

    def _failed(self) -> None:
        """Stop, because the predictor has failed. A pool that has lost its workers starts new ones later: until then `/ready`
        answers 503. Any thread."""
        if not isinstance(self._predictor.error, EngineLost):
            self.stop()

    def _open(self, stack: ExitStack, model: Model) -> None:
        """Give the service the warm predictor, and the facts about it."""
        service, predictor = self.service, model.predictor
        classifier = Classifier(predictor, self._options.capacity, cores())
        service.handler.classifier = stack.enter_context(classifier)
        service.model = self._model_report(model)
        service.memory = lambda: memory_share(model)
        service.workers = predictor.workers
        service.restarts = lambda: predictor.restarts
        service.lost = lambda: predictor.error is not None

    def _drain(self, service: Service) -> None:
        service.state = "stopping"
        log.info("stopping: %d requests in flight", service.handler.in_flight)
        if not service.handler.idle.wait(DRAIN_S):
            log.warning("%d requests were not answered within %g s", service.handler.in_flight, DRAIN_S)

    def _model_report(self, model: Model) -> ModelReport:
        """The answer of `/v1/model`."""
        options, engine, limits = self._options, model.predictor.engine, self.service.handler.limits
        (classes,) = engine.outputs[0].shape
        names = model.names or tuple(f"class {k}" for k in range(classes))
        return ModelReport(
            model=self._settings.model,
            classes=classes,
            labels=names,
            engine=engine.name,
            precision=engine.precision,
            device=engine.device,
            why=model.why,
            workers=options.workers,
            batching=options.batching,
            max_batch=options.max_batch,
            max_wait_ms=options.max_wait_ms,
            queue_capacity=options.capacity,
            request_timeout_s=options.request_timeout,
            max_upload_mb=options.max_upload_mb,
            topk=limits.topk,
            most_topk=limits.most_topk,
            profile_ms=model.predictor.profile.as_ms(),
        )


def memory_share(model: Model) -> float | None:
    """Share of memory in use, 0-1: of the fullest GPU; if the device is the CPU, the share of this machine's memory that this
    process and its workers use. None if it is unknown."""
    devices = {worker.device for worker in model.predictor.workers()}
    shares = [share for device in devices if (share := gpu_memory_share(device)) is not None]
    return max(shares, default=memory_mb(model) / memory_limit_mb() if model.engine.device == "cpu" else None)
