"""A connection to a camera, plain or TLS, that never blocks: who waits is the caller."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence

from pipelines.errors import SourceError, reason
from pipelines.sources.rtsp.deadline import ready

RECEIVE_BYTES = 256 << 10
"""Of one read: more than a key picture has, so that a burst is one call."""
SEND_BYTES = 64 << 10
"""That wait for a peer that does not read: requests and receiver reports have some hundred."""


class HungUp(SourceError):
    """The camera ended the connection."""


class Connection:
    """A connected, non-blocking socket and what still waits to be sent. Thread: one, its owner's."""

    def __init__(self, one: socket.socket) -> None:
        self.socket = one
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._out = bytearray()
        self._tls = one if isinstance(one, ssl.SSLSocket) else None
        self._quick_ack: int | None = getattr(socket, "TCP_QUICKACK", None)
        self._more = False
        self.local: tuple[object, ...] = one.getsockname()
        try:
            self.peer: tuple[object, ...] = one.getpeername()
        except OSError:
            raise HungUp("the camera hung up") from None

    @property
    def writers(self) -> tuple[socket.socket, ...]:
        """The socket, if it has something to send."""
        return (self.socket,) if self._out else ()

    def wait(self, timeout_s: float, others: Sequence[socket.socket] = ()) -> bool:
        """Wait for something to read, here or on the others; sends meanwhile what could not be sent at once."""
        if self._more:
            return True
        able = ready((self.socket, *others), self.writers, timeout_s)
        self._flush()
        return able

    def read(self) -> memoryview:
        """What has come, at most RECEIVE_BYTES, empty if nothing has. The next read overwrites it.

        :raises HungUp: if the connection has ended.
        """
        size = 0
        self._more = False
        try:
            size = self.socket.recv_into(self._view)
            while self._tls is not None and size < RECEIVE_BYTES and (more := self._tls.pending()):
                # A read of TLS gives one record; what is decrypted already does not make the socket readable.
                size += self._tls.recv_into(self._view[size : size + more])
            self._more = self._tls is not None and self._tls.pending() > 0
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return self._view[:size]
        except OSError as error:
            raise HungUp(f"the camera hung up ({reason(error)})") from None
        if not size:
            raise HungUp("the camera hung up")
        if self._quick_ack is not None:
            # It falls back by itself. A delayed acknowledgement meets the sender's Nagle: 1 frame in 100 came 40 ms late.
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, self._quick_ack, 1)
        return self._view[:size]

    def send(self, data: bytes) -> bool:
        """Send now or with the next waits, whole or not at all; False if too much waits already.

        That the connection has ended is told by `read`, after all that came before.
        """
        if len(self._out) + len(data) > SEND_BYTES:
            return False
        self._out += data
        self._flush()
        return True

    def _flush(self) -> None:
        while self._out:
            try:
                del self._out[: self.socket.send(self._out)]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self._out.clear()

    def close(self) -> None:
        """Close the socket. Twice is fine."""
        self._view.release()
        self.socket.close()
