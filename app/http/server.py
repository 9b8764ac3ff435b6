"""The HTTP server: uvicorn's, in a thread of its own, on a socket that listens already."""

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
"""Within which a connection must have sent a request's headers."""
KEEP_S = 65
"""Longer than the usual proxy keeps a connection, so that it is the proxy that closes it, not we under its next request."""
GRACE_S = 1
"""After which connections are cut whose answer does not go out."""
SPARE = 64
"""File descriptors that are kept for everything but connections."""


class Connection(HttpToolsProtocol):
    """uvicorn's, with a limit for headers: its own timer runs only behind an answer, so that who never asks stays for ever."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(HEADERS_S, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def most_connections() -> int:
    """As many as there are file descriptors for, of all that this process may ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE, 8)


class HttpServer:
    """`run` serves until `stop`."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=Connection,
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
        """Take no connection any more, finish the answers, end. Any thread."""
        self._server.should_exit = True


def quiet_libraries(level: int) -> None:
    """What the libraries say goes where our own lines go, from `level` on: anybody can make the server complain of him."""
    for name in ("uvicorn", "asyncio", "python_multipart"):
        logger: Any = logging.getLogger(name)
        logger.handlers[:] = logging.getLogger("watchline").handlers
        logger.propagate = False
        logger.setLevel(level)
