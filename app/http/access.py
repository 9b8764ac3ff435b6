"""Access control by a bearer token. It is compared in constant time, before the body of a request is read."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.responses import JSONResponse

from app.http.problems import Problem

OPEN = frozenset({"/live", "/ready", "/docs", "/openapi.json"})
"""Paths that need no token: probes have none, and the documentation holds no data of this service."""
App = Callable[[Any, Any, Any], Awaitable[None]]


class Access:
    """Passes requests with the right token, and requests for open paths, to the application; the others get 401.

    token: None lets every request pass. denied: called for each request that was refused, in the event loop.
    """

    def __init__(self, app: App, token: bytes | None, denied: Callable[[], None]) -> None:
        self._app = app
        self._wanted = None if token is None else b"Bearer " + token
        self._denied = denied

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or self._wanted is None or scope["path"] in OPEN or self._has_token(scope["headers"]):
            await self._app(scope, receive, send)
            return
        self._denied()
        problem = Problem(401, "unauthorized", "this service needs its token: Authorization: Bearer TOKEN")
        await JSONResponse(problem.as_dict(), problem.status, problem.headers)(scope, receive, send)

    def _has_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        assert self._wanted is not None
        return hmac.compare_digest(kind.title() + b" " + token.strip(), self._wanted)
