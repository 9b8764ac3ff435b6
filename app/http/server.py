"""The HTTP server: uvicorn in a thread of its own, on a socket that already listens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.access import App

HEADERS_S = 10.0
"""Time for a connection to send the headers of a request; then it is closed."""
KEEP_S = 65
"""Longer than the usual proxy keeps a connection: the proxy closes it. If the service did, it could cut the next request."""
GRACE_S = 1
"""Time for unsent answers after a stop; then their connections are cut."""
SPARE = 64
"""File descriptors that are kept free for files, pipes and sockets other than connections."""


class HttpConnection(HttpToolsProtocol):
    """A connection of uvicorn with a time limit for headers.

    uvicorn's keep-alive timer starts after the first response: a client that never sends a request would stay connected.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(HEADERS_S, self.timeout_keep_alive_handler)

    def _stop_timer(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def most_connections() -> int:
    """The number of connections that file descriptors allow. Raises the limit of this process to its maximum first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE, 8)


class HttpServer:
    """A server for `app`: `run` serves until `stop`."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_S,
            timeout_graceful_shutdown=GRACE_S,
        )
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
        """Accept no more connections, finish the answers, end. Any thread."""
        self._server.should_exit = True


def quiet_libraries(level: int) -> None:
    """Send log lines of the libraries, from `level` upwards, to Watchline's log. Clients can trigger these lines at will."""
    for name in ("uvicorn", "asyncio", "python_multipart"):
        logger: Any = logging.getLogger(name)
        logger.handlers[:] = logging.getLogger("watchline").handlers
        logger.propagate = False
        logger.setLevel(level)
