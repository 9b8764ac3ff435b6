"""The service's routes, and what stands behind them: where it is in its life, and what it knows of its predictor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from app.http.access import Access, App
from app.http.metrics import Metrics
from app.http.problems import CROWDED, RETRY_S, Problem
from app.serve import documentation, health, schemas
from app.serve.handler import RequestHandler, ServiceLimits
from app.serve.memory_budget import MemoryBudget
from pipelines.predict.worker_facts import WorkerFacts

log = logging.getLogger("watchline.serve")

NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI can send what it sees to a collector that the environment names."""
CLASSIFY = "/v1/classify"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Service:
    """One service. Its state is set by the thread that starts and stops it, everything else runs in the event loop.

    What it knows of its predictor is told once that is warm; before, there are no workers.
    """

    def __init__(
        self, limits: ServiceLimits, *, token: bytes | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.recent = health.Recent(clock)
        self.room = MemoryBudget()
        self.metrics = Metrics(self.facts)
        self.model: Mapping[str, Any] = {}
        self.wanted = 1
        self.workers: Callable[[], Sequence[WorkerFacts]] = list
        self.restarts: Callable[[], int] = lambda: 0
        self.lost: Callable[[], bool] = lambda: False
        """No worker is left, and none is started for a while."""
        self.memory: Callable[[], float | None] = lambda: None
        self.connections: Callable[[], int] = lambda: 0
        self.most_connections = 1000
        self.state = "starting"
        self.exchange = RequestHandler(limits, self, clock)
        self.app: App = Access(shortened(make_app(self), self.exchange), token, lambda: self.metrics.request("unauthorized"))

    def batch(self, size: int, seconds: float) -> None:
        """A batch has ended; seconds: as a share of all workers' time. Any thread."""
        self.recent.batch(size, seconds)
        self.metrics.batch(size)

    @property
    def warm(self) -> int:
        """Workers that are ready."""
        return sum(worker.state == "ready" for worker in self.workers())

    @property
    def ready(self) -> bool:
        """Whether it takes requests with all the workers that were asked for."""
        return self.state == "ready" and self.warm >= self.wanted

    def check_open(self) -> None:
        """:raises Problem: if it takes no requests now."""
        if self.state != "ready":
            words = {"starting": "the model is being loaded", "stopping": "the service is stopping"}
            raise Problem(503, self.state, words[self.state], retry_after_s=RETRY_S)
        if self.connections() > self.most_connections:
            raise Problem(503, CROWDED, f"more than {self.most_connections} connections are open")

    def state_report(self) -> dict[str, Any]:
        short = self.state == "ready" and not self.ready
        state = ("failed" if self.lost() else "degraded") if short else self.state
        return {"ready": self.ready, "state": state, "workers": self.warm, "wanted": self.wanted}

    def health_report(self) -> dict[str, Any]:
        return health.report(self.recent.minute(), self.memory())

    def facts(self) -> dict[str, Any]:
        """What the metrics show of now."""
        minute = self.recent.minute()
        return {
            "ready": int(self.ready),
            "queue_depth": self.exchange.waiting,
            "queue_capacity": self.exchange.limits.capacity,
            "queue_wait_p99_seconds": minute.queue_wait_p99_s,
            "held_bytes": self.room.held,
            "connections": self.connections(),
            "worker_restarts": self.restarts(),
            "workers": self.workers(),
        }


def shortened(app: App, exchange: RequestHandler) -> App:
    """Pictures go past FastAPI's routing, a fifth of what the event loop spent on one (0.48 ms, now 0.38). The rest is
    FastAPI's, and so is the documentation of this."""

    async def route(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == CLASSIFY and scope["method"] == "POST":
            response = await exchange.classify(Request(scope, receive, send))
            await response(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":  # load balancers ask so; the server leaves the body out
            await app({**scope, "method": "GET"}, receive, send)
        else:
            await app(scope, receive, send)

    return route


def make_app(service: Service) -> FastAPI:
    """The application with all routes."""
    app = FastAPI(
        title="Watchline",
        version="1",
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
        description="Labels for pictures: classification by the same predictor that watches cameras.",
    )
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(HTTPException, _http_problem)

    @app.post(CLASSIFY, summary="Classify pictures", **documentation.CLASSIFY)
    async def classify(request: Request) -> Response:
        # For the documentation, and for who uses the application without the short way.
        return await service.exchange.classify(request)

    @app.get("/v1/model", summary="The model", response_model=schemas.ModelReport, responses=documentation.PROTECTED)
    async def model() -> Response:
        if not service.model:
            service.check_open()
        return JSONResponse(service.model)

    @app.get(
        "/v1/health-report",
        summary="The four figures to watch",
        response_model=schemas.HealthReport,
        responses=documentation.PROTECTED,
    )
    async def health_report() -> Response:
        return JSONResponse(service.health_report())

    @app.get("/live", summary="Whether the process lives", responses=documentation.LIVE)
    async def live() -> Response:
        return JSONResponse({"live": True})

    @app.get("/ready", summary="Whether all workers are warm", response_model=schemas.State, responses=documentation.READY)
    async def ready() -> Response:
        report = service.state_report()
        return JSONResponse(report, 200 if report["ready"] else 503)

    @app.get("/metrics", summary="Metrics for Prometheus", responses=documentation.METRICS, response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=TEXT)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation.page(app.openapi()))

    return app


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.as_dict(), error.status, error.headers)


async def _http_problem(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the shape of the other problems."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
    return JSONResponse({"error": code, "message": f"{error.detail}; see /docs"}, error.status_code, error.headers)
