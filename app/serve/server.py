"""The HTTP server: uvicorn's, in a thread of its own, on a socket that listens already."""

from __future__ import annotations

import logging
import resource
import socket
from typing import Any

import uvicorn

from app.serve.access import App

HEADERS_S = 10.0
"""Within which a connection must have sent a request's headers; an idle one is closed after KEEP_S."""
KEEP_S = 65
"""Longer than the usual proxy keeps a connection, so that it is the proxy that closes it, not we under its next request."""
GRACE_S = 1
"""After which connections are cut whose answer does not go out."""
SPARE = 64
"""File descriptors that are kept for everything but connections."""


class HttpServer:
    """`run` serves until `stop`; at most one connection for each file descriptor that is left, what is beyond gets 503."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        self._listener = listener
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        config = uvicorn.Config(
            app, http="httptools", ws="none", lifespan="off", loop="asyncio", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_S,
            timeout_graceful_shutdown=GRACE_S, limit_concurrency=max(most - SPARE, 8),
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._server.server_state.connections)

    def run(self) -> None:
        """Thread: serve:http. The listener is closed at the end."""
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._listener.close()

    def stop(self) -> None:
        """Take no connection any more, finish the answers, end. Any thread."""
        self._server.should_exit = True


def quiet_libraries(level: int) -> None:
    """What the libraries say goes where our own lines go, from `level` on: anybody can make the server complain of him."""
    for name in ("uvicorn", "asyncio"):
        logger: Any = logging.getLogger(name)
        logger.handlers[:] = logging.getLogger("watchline").handlers
        logger.propagate = False
        logger.setLevel(level)


