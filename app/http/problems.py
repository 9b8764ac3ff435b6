"""Failures of a request, each with its HTTP status."""

from __future__ import annotations

import math
from typing import Any

from pipelines.errors import Dropped, Refused, SourceError

RETRY_S = 1.0
"""Retry-After if no better estimate is known; the header counts whole seconds."""

CROWDED = "too_many_connections"


class Problem(Exception):
    """An answer without a result. `code` is for programs and never changes, `message` is for people."""

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def headers(self) -> dict[str, str]:
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        if self.code == CROWDED:
            return {"Retry-After": "1", "Connection": "close"}
        return {} if self.retry_after_s is None else {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}

    def as_dict(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message}


def problem_of(error: BaseException) -> Problem:
    """The answer to an error of a picture. An unknown error is a fault of the service: clients do not get its text."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refused):
        if error.why == "deadline":
            text = "the pictures that already wait, or the model alone, take longer than the deadline allows"
            return Problem(503, "deadline_cannot_be_met", text, retry_after_s=error.retry_after_s)
        if error.why == "no_worker":
            return Problem(503, "no_worker", "no worker is ready", retry_after_s=error.retry_after_s)
        if error.why == "memory":
            text = "the pictures in work already hold all the memory that requests may hold"
            return Problem(503, "memory_full", text, retry_after_s=error.retry_after_s)
        return Problem(503, "queue_full", "as many pictures wait already as may wait", retry_after_s=error.retry_after_s)
    if isinstance(error, Dropped):
        if error.cause == "deadline":
            return too_late()
        return Problem(503, "stopping", "the service is stopping", retry_after_s=RETRY_S)
    if isinstance(error, SourceError):
        return Problem(400, "undecodable", str(error))
    return Problem(500, "failed", "the model could not answer; the log of the service says why")


def too_late() -> Problem:
    return Problem(504, "deadline_passed", "the deadline has passed")


def too_large(message: str) -> Problem:
    return Problem(413, "too_large", message)


def wrong_shape(message: str) -> Problem:
    return Problem(422, "wrong_shape", message)
