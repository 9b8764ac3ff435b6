"""Access control by a bearer token. It is compared in constant time, before the body of a request is read."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Set
from typing import Any

from starlette.responses import JSONResponse

from app.http.problems import Problem

App = Callable[[Any, Any, Any], Awaitable[None]]


class Access:
    """Passes requests with the right token, and requests for open paths, to the application; the others get 401.

    token: None lets every request pass. open_paths: paths that need no token. denied: called for each request that was refused,
    in the event loop.
    """

    def __init__(self, app: App, token: bytes | None, open_paths: Set[str], denied: Callable[[], None]) -> None:
        self._app = app
        self._wanted = None if token is None else b"Bearer " + token
        self._open_paths = open_paths
        self._denied = denied

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_open = scope["type"] != "http" or self._wanted is None or scope["path"] in self._open_paths
        if is_open or self._has_token(scope["headers"]):
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
