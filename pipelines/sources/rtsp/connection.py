"""A non-blocking connection to a camera, plain or TLS. Callers wait with `wait`, outside of `read` and `send`."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence

from pipelines.errors import SourceError, reason
from pipelines.sources.rtsp.deadline import ready

RECEIVE_BYTES = 256 << 10
"""Most bytes of one read: more than a key picture has, so that one call reads a burst."""
SEND_BYTES = 64 << 10
"""Most unsent bytes, if the peer does not read. A request or receiver report has a few hundred."""


class HungUp(SourceError):
    """The camera closed the connection."""


class Connection:
    """A connected, non-blocking socket with its buffer of unsent bytes. Thread: one, the owner's.

    :param one: the socket, which the connection closes.
    :raises HungUp: if the peer has closed it already.
    """

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
        """The socket if bytes are unsent, else empty."""
        return (self.socket,) if self._out else ()

    def wait(self, timeout_s: float, others: Sequence[socket.socket] = ()) -> bool:
        """Wait until this socket or one of `others` is readable, at most `timeout_s` seconds. Returns False after a timeout.

        Unsent bytes are sent meanwhile; it also returns True when the socket accepts them.
        """
        if self._more:
            return True
        able = ready((self.socket, *others), self.writers, timeout_s)
        self._flush()
        return able

    def read(self) -> memoryview:
        """The received bytes, at most RECEIVE_BYTES; empty if there are none. The next read overwrites the view.

        :raises HungUp: if the connection has ended.
        """
        size = 0
        self._more = False
        try:
            size = self.socket.recv_into(self._view)
            while self._tls is not None and size < RECEIVE_BYTES and (more := self._tls.pending()):
                # A TLS read returns one record. Records that are decrypted already do not make the socket readable.
                size += self._tls.recv_into(self._view[size : size + more])
            self._more = self._tls is not None and self._tls.pending() > 0
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return self._view[:size]
        except OSError as error:
            raise HungUp(f"the camera hung up ({reason(error)})") from None
        if not size:
            raise HungUp("the camera hung up")
        if self._quick_ack is not None:
            # The kernel resets this option. Delayed acknowledgements and the sender's Nagle algorithm wait for each other:
            # 1 frame in 100 came 40 ms late.
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.IPPROTO_TCP, self._quick_ack, 1)
        return self._view[:size]

    def send(self, data: bytes) -> bool:
        """Send `data` now and, if the socket is full, during the next calls of `wait`. Returns False, and sends nothing,
        if more than SEND_BYTES would be unsent.

        No error tells that the connection has ended: `read` raises it after all received bytes.
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
        """Close the socket. A second call does nothing."""
        self._view.release()
        self.socket.close()
