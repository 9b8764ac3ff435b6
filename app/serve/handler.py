"""One request to classify, from its headers to its answer. Event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from app.http.metrics import Metrics
from app.http.problems import Problem, problem_of, too_large, too_late, wrong_shape
from app.serve.classifier import Classifier, PendingRequest, Ticket
from app.serve.health import Recent
from app.serve.memory_budget import MemoryBudget, Reservation
from app.serve.schemas import answer, stages
from app.serve.uploads import MANY, check_type, uploads
from pipelines.errors import Dropped, Refused
from pipelines.frame import Prediction, Region

log = logging.getLogger("watchline.serve")

GONE = 499
"""The status of a request whose caller has hung up; nobody sees it."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """capacity: pictures that may wait, and that one request may hold; timeout_s: the deadline of a request without one, and
    the longest; topk: labels of an answer, by default and at most."""

    capacity: int = 48
    timeout_s: float = 5.0
    max_upload: int = 16 << 20
    topk: int = 5
    most_topk: int = 20


class ServiceState(Protocol):
    """What a request is told of its service."""

    room: MemoryBudget
    metrics: Metrics
    recent: Recent

    def check_open(self) -> None: ...


class RequestHandler:
    """Takes requests to the classifier, once there is one."""

    def __init__(self, limits: ServiceLimits, desk: ServiceState, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.classifier: Classifier | None = None
        self.in_flight = 0
        """Requests that were let in and are not answered."""
        self.idle = threading.Event()
        """Set while there are none."""
        self.idle.set()
        self._desk = desk
        self._clock = clock

    @property
    def waiting(self) -> int:
        """Pictures that wait."""
        return self.classifier.waiting if self.classifier is not None else 0

    async def classify(self, request: HttpRequest) -> Response:
        """Answer a request, whatever happens to it."""
        arrived_s = self._clock()
        holding = Reservation(self._desk.room)
        self._enter()
        try:
            response = await self._answered(request, arrived_s, holding)
        except ClientDisconnect:
            self._desk.metrics.request("gone")
            return Response(status_code=GONE)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                log.error("a request failed: %s: %s", type(error).__name__, error, exc_info=log.isEnabledFor(logging.DEBUG))
            self._desk.metrics.request(problem.code)
            return JSONResponse(problem.as_dict(), problem.status, problem.headers)
        finally:
            holding.release()
            self._leave()
        return response

    def _enter(self) -> None:
        self.in_flight += 1
        self.idle.clear()

    def _leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()

    async def _answered(self, request: HttpRequest, arrived_s: float, holding: Reservation) -> Response:
        self._desk.check_open()
        classifier, headers = self.classifier, request.headers
        assert classifier is not None
        content_type = headers.get("content-type", "")
        check_type(content_type)
        topk = self._topk(request)
        deadline_s = arrived_s + self._limit_s(headers.get("x-deadline-ms"))
        self._check_length(headers.get("content-length"))
        classifier.check_room(1, deadline_s)
        try:
            async with asyncio.timeout(deadline_s - self._clock()):
                body = await self._body(request, holding)
        except TimeoutError:
            raise too_late() from None
        received_s = self._clock()
        found = uploads(content_type, headers, body, self.limits.capacity)
        del body  # of a form: its pictures are copies
        taken = classifier.take(found, deadline_s, holding, Region(limit=topk))
        await self._wait(request, taken, deadline_s)
        now_s = self._clock()
        results = [self._result(ticket, arrived_s, received_s, now_s) for ticket in taken.tickets]
        if content_type.lower().startswith(MANY):
            good = any("labels" in result for result in results)
            for ticket in taken.tickets:
                if isinstance(ticket.outcome, BaseException) and problem_of(ticket.outcome).status == 500:
                    log.error("a picture of a form failed: %s: %s", type(ticket.outcome).__name__, ticket.outcome)
            self._desk.metrics.request("ok" if good else results[0]["error"])
            return JSONResponse({"results": results}, 200 if good else results[0]["status"])
        (ticket,) = taken.tickets
        if isinstance(ticket.outcome, BaseException):
            raise ticket.outcome
        self._desk.metrics.request("ok")
        return JSONResponse(results[0])

    def _topk(self, request: HttpRequest) -> int:
        given = request.query_params.get("topk")
        if given is None:
            return self.limits.topk
        if not re.fullmatch("[0-9]{1,9}", given, re.ASCII) or not 1 <= int(given) <= self.limits.most_topk:
            raise wrong_shape(f"topk must be a whole number from 1 to {self.limits.most_topk}, got {given[:50]!r}")
        return int(given)

    def _limit_s(self, given: str | None) -> float:
        """Seconds that a request may take."""
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

    async def _body(self, request: HttpRequest, holding: Reservation) -> bytes:
        """:raises Problem: if it is too large; :raises Refused: if there is no room for it."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > self.limits.max_upload:
                raise self._too_large()
            holding.take(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def _wait(self, request: HttpRequest, taken: PendingRequest, deadline_s: float) -> None:
        """Until all tickets have ended, the deadline has passed, or the caller has hung up.

        :raises Refused: if a ticket was; the others are given up.
        """
        gone = asyncio.ensure_future(_hung_up(request))
        try:
            left_s = max(deadline_s - self._clock(), 0)
            await asyncio.wait((taken.done, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not taken.done.done():
                raise ClientDisconnect
        finally:
            gone.cancel()
            taken.give_up(Dropped("deadline"))
        for ticket in taken.tickets:
            if isinstance(ticket.outcome, Refused):
                raise ticket.outcome

    def _result(self, ticket: Ticket, arrived_s: float, received_s: float, now_s: float) -> dict[str, Any]:
        outcome, frame = ticket.outcome, ticket.frame
        named = {} if ticket.upload.file is None else {"file": ticket.upload.file}
        if isinstance(outcome, Prediction) and frame is not None:
            times = stages(frame, arrived_s, received_s, now_s)
            self._desk.metrics.latency(times)
            self._desk.metrics.picture("ok")
            self._desk.recent.waited(times["queue"])
            frame.let_go()
            return named | answer(outcome, times)
        assert isinstance(outcome, BaseException)
        problem = problem_of(outcome)
        self._desk.metrics.picture(problem.code)
        return named | {"status": problem.status, **problem.as_dict()}


async def _hung_up(request: HttpRequest) -> None:
    """Until the caller is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
