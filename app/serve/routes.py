"""The routes of the service."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from app.http.access import App
from app.http.problems import Problem
from app.serve import documentation, schemas
from app.serve.handler import RequestHandler
from app.serve.service import Service

NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""Without this, FastAPI sends data about requests to a collector that the environment names."""
CLASSIFY = "/v1/classify"
OPEN_PATHS = frozenset({"/live", "/ready", "/docs", "/openapi.json"})
"""Paths that need no token: probes have none, and the documentation holds no data of this service."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def make_app(service: Service) -> App:
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
    _add_model(app, service)
    _add_health(app, service)
    _add_documentation(app)
    return _shortcut(app, service.handler)


def _shortcut(app: App, handler: RequestHandler) -> App:
    """Requests with pictures skip FastAPI's routing: the event loop then spends 0.38 ms on a picture instead of 0.48.
    FastAPI routes all other requests, and documents this one too."""

    async def route(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == CLASSIFY and scope["method"] == "POST":
            response = await handler.classify(Request(scope, receive, send))
            await response(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "HEAD":  # of load balancers; the server leaves the body out
            await app({**scope, "method": "GET"}, receive, send)
        else:
            await app(scope, receive, send)

    return route


def _add_model(app: FastAPI, service: Service) -> None:
    @app.post(CLASSIFY, summary="Classify pictures", **documentation.CLASSIFY)
    async def classify(request: Request) -> Response:
        # For the documentation; requests take the shortcut.
        return await service.handler.classify(request)

    @app.get("/v1/model", summary="The model", response_model=schemas.ModelReport, responses=documentation.PROTECTED)
    async def model() -> Response:
        if service.model is None:
            service.check_open()
        return JSONResponse(service.model.as_dict() if service.model is not None else {})


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get(
        "/v1/health-report",
        summary="The four figures to watch",
        response_model=schemas.HealthReport,
        responses=documentation.PROTECTED,
    )
    async def health_report() -> Response:
        return JSONResponse(service.health_report().as_dict())

    @app.get("/live", summary="Whether the process lives", responses=documentation.LIVE)
    async def live() -> Response:
        return JSONResponse({"live": True})

    @app.get("/ready", summary="Whether all workers are warm", response_model=schemas.State, responses=documentation.READY)
    async def ready() -> Response:
        report = service.state_report()
        return JSONResponse(report.as_dict(), 200 if report.ready else 503)

    @app.get("/metrics", summary="Metrics for Prometheus", responses=documentation.METRICS, response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=TEXT)


def _add_documentation(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(documentation.page(app.openapi()))


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return JSONResponse(error.as_dict(), error.status, error.headers)


async def _http_problem(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the shape of the other problems."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http")
    return JSONResponse({"error": code, "message": f"{error.detail}; see /docs"}, error.status_code, error.headers)
