"""RequestHandler: a request to classify pictures, from its headers to its answer. Event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from app.http.metrics import Metrics
from app.http.problems import Problem, problem_of, too_large, too_late, wrong_shape
from app.serve.classifier import Classifier, PendingRequest, Ticket
from app.serve.health import LastMinute
from app.serve.memory_budget import MemoryBudget, Reservation
from app.serve.schemas import answer, stages
from app.serve.uploads import MANY, check_type, uploads
from pipelines.errors import Dropped, Refused
from pipelines.frame import Prediction, Region

log = logging.getLogger("watchline.serve")

HUNG_UP = 499
"""The status of a request after its client closed the connection; no client gets it."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of requests. capacity: most pictures that wait, and most pictures of one request. timeout_s: the deadline of a
    request without a deadline, and the longest deadline. max_upload: most bytes of a body. topk: labels of an answer by
    default; most_topk: at most."""

    capacity: int = 48
    timeout_s: float = 5.0
    max_upload: int = 16 << 20
    topk: int = 5
    most_topk: int = 20


class ServiceState(Protocol):
    """The parts of the service that a request needs. check_open raises Problem if the service takes no requests now."""

    memory_budget: MemoryBudget
    metrics: Metrics
    last_minute: LastMinute

    def check_open(self) -> None: ...


class RequestHandler:
    """Answers requests with the classifier; `classifier` is None until the model is warm."""

    def __init__(self, limits: ServiceLimits, service: ServiceState, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.classifier: Classifier | None = None
        self.in_flight = 0
        """Requests that have arrived and are not answered."""
        self.idle = threading.Event()
        """Set while no request is in flight."""
        self.idle.set()
        self._service = service
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Pictures that wait, for decoding or for a batch."""
        return self.classifier.waiting if self.classifier is not None else 0

    async def classify(self, request: HttpRequest) -> Response:
        """The answer to a request, also if it fails."""
        arrived_s = self._clock()
        reservation = Reservation(self._service.memory_budget)
        self._enter()
        try:
            response = await self._answer(request, arrived_s, reservation)
        except ClientDisconnect:
            self._service.metrics.request("gone")
            return Response(status_code=HUNG_UP)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                log.error("a request failed: %s: %s", type(error).__name__, error, exc_info=log.isEnabledFor(logging.DEBUG))
            self._service.metrics.request(problem.code)
            return JSONResponse(problem.as_dict(), problem.status, problem.headers)
        finally:
            reservation.release()
            self._leave()
        return response

    def _enter(self) -> None:
        self.in_flight += 1
        self.idle.clear()

    def _leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()

    async def _answer(self, request: HttpRequest, arrived_s: float, reservation: Reservation) -> Response:
        self._service.check_open()
        classifier, headers = self.classifier, request.headers
        assert classifier is not None
        content_type = headers.get("content-type", "")
        check_type(content_type)
        topk = self._topk(request)
        deadline_s = arrived_s + self._time_limit_s(headers.get("x-deadline-ms"))
        self._check_length(headers.get("content-length"))
        classifier.check_capacity(1, deadline_s)
        body = await self._body(request, deadline_s, reservation)
        received_s = self._clock()
        pictures = uploads(content_type, headers, body, self.limits.capacity)
        del body  # the pictures of a form are copies: its body need not stay in memory
        pending = classifier.take(pictures, deadline_s, reservation, Region(limit=topk))
        await self._wait_for_tickets(request, pending, deadline_s)
        now_s = self._clock()
        results = [self._result(ticket, arrived_s, received_s, now_s) for ticket in pending.tickets]
        if content_type.lower().startswith(MANY):
            return self._form_response(pending.tickets, results)
        (ticket,) = pending.tickets
        if isinstance(ticket.outcome, BaseException):
            raise ticket.outcome
        self._service.metrics.request("ok")
        return JSONResponse(results[0])

    def _form_response(self, tickets: Sequence[Ticket], results: list[dict[str, Any]]) -> Response:
        """The answer to a form. Its status is 200 if one picture has a result, else that of the first failure."""
        good = any("labels" in result for result in results)
        for ticket in tickets:
            if isinstance(ticket.outcome, BaseException) and problem_of(ticket.outcome).status == 500:
                log.error("a picture of a form failed: %s: %s", type(ticket.outcome).__name__, ticket.outcome)
        self._service.metrics.request("ok" if good else results[0]["error"])
        return JSONResponse({"results": results}, 200 if good else results[0]["status"])

    def _topk(self, request: HttpRequest) -> int:
        given = request.query_params.get("topk")
        if given is None:
            return self.limits.topk
        if not re.fullmatch("[0-9]{1,9}", given, re.ASCII) or not 1 <= int(given) <= self.limits.most_topk:
            raise wrong_shape(f"topk must be a whole number from 1 to {self.limits.most_topk}, got {given[:50]!r}")
        return int(given)

    def _time_limit_s(self, given: str | None) -> float:
        """Seconds that a request may take. given: its header X-Deadline-Ms.

        :raises Problem: if the header is no number of milliseconds above 0.
        """
        if given is None:
            return self.limits.timeout_s
        try:
            ms = float(given)
        except ValueError:
            ms = math.nan
        if not (math.isfinite(ms) and ms > 0):
            raise wrong_shape(f"X-Deadline-Ms must be a number of milliseconds above 0, got {given[:50]!r}")
        return min(1e-3 * ms, self.limits.timeout_s)

    def _check_length(self, given: str | None) -> None:
        if given is not None and given.isdigit() and int(given) > self.limits.max_upload:
            raise self._too_large()

    def _too_large(self) -> Problem:
        return too_large(f"the body is larger than {self.limits.max_upload} bytes")

    async def _body(self, request: HttpRequest, deadline_s: float, reservation: Reservation) -> bytes:
        """The whole body.

        :raises Problem: if it is too large, or not complete before the deadline.
        :raises Refused: if requests already hold too much memory.
        """
        try:
            async with asyncio.timeout(deadline_s - self._clock()):
                return await self._read(request, reservation)
        except TimeoutError:
            raise too_late() from None

    async def _read(self, request: HttpRequest, reservation: Reservation) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self.limits.max_upload:
                raise self._too_large()
            reservation.take(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def _wait_for_tickets(self, request: HttpRequest, pending: PendingRequest, deadline_s: float) -> None:
        """Wait until all tickets have ended, or the deadline has passed.

        :raises Refused: if the predictor refused a ticket; the others are cancelled.
        :raises ClientDisconnect: if the client closed the connection.
        """
        hung_up = asyncio.ensure_future(_hung_up(request))
        try:
            left_s = max(deadline_s - self._clock(), 0)
            await asyncio.wait((pending.done, hung_up), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if hung_up.done() and not pending.done.done():
                raise ClientDisconnect
        finally:
            hung_up.cancel()
            pending.cancel(Dropped("deadline"))
        for ticket in pending.tickets:
            if isinstance(ticket.outcome, Refused):
                raise ticket.outcome

    def _result(self, ticket: Ticket, arrived_s: float, received_s: float, now_s: float) -> dict[str, Any]:
        """The answer of one picture, or its failure; counted in the metrics."""
        outcome, frame = ticket.outcome, ticket.frame
        named = {} if ticket.upload.file is None else {"file": ticket.upload.file}
        if isinstance(outcome, Prediction) and frame is not None:
            times = stages(frame, arrived_s, received_s, now_s)
            self._service.metrics.latency(times)
            self._service.metrics.picture("ok")
            self._service.last_minute.waited(times["queue"])
            frame.let_go()
            return named | answer(outcome, times)
        assert isinstance(outcome, BaseException)
        problem = problem_of(outcome)
        self._service.metrics.picture(problem.code)
        return named | {"status": problem.status, **problem.as_dict()}


async def _hung_up(request: HttpRequest) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
