"""The two UDP ports of a track: RTP on an even port, RTCP on the next one (RFC 3550, section 11)."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Literal

from pipelines.errors import SourceError
from pipelines.sources.rtsp.received import Received

TRIES = 64
"""Tries to find a free even port with a free next one."""
RECEIVE_BUFFER = 4 << 20
"""Requested bytes of the socket's receive buffer; net.core.rmem_max limits it. A 4K key picture is a burst of 1000 packets."""
MOST_RTP = 512
"""Most RTP datagrams of one `receive`, so that it ends during a flood."""
MOST_RTCP = 32
"""Most RTCP datagrams of one `receive`."""
DATAGRAM = 65536
OPENERS = (b"\x80" + bytes(11), b"\x80\xc9\x00\x01" + bytes(4))
"""An empty RTP packet and an empty receiver report. They open firewalls for the server's packets; servers ignore them."""


class Datagrams:
    """The two bound, non-blocking UDP sockets of a track. Datagrams from other hosts than the server are dropped.

    Thread: one, the owner's.

    :param local: address (as from `getsockname`) of the RTSP connection on which the track is set up.
    :param clock: monotonic; of the arrival times.
    :param buffer: bytes of the receive buffer to ask the kernel for.
    :raises SourceError: if there are no two free ports.
    """

    def __init__(
        self,
        family: socket.AddressFamily,
        local: tuple[object, ...],
        clock: Callable[[], float] = time.monotonic,
        *,
        buffer: int = RECEIVE_BUFFER,
    ) -> None:
        self._clock = clock
        self._view = memoryview(bytearray(DATAGRAM))
        self._servers: set[str] = set()
        self._remote: tuple[tuple[object, ...], tuple[object, ...]] | None = None
        self.rtp, self.rtcp = _pair(family, local, buffer)
        self.port = int(self.rtp.getsockname()[1])
        """Local RTP port; the RTCP port is the next one."""

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """The sockets to wait on: RTP, RTCP."""
        return self.rtp, self.rtcp

    def expect(self, peer: tuple[object, ...], source: str, ports: tuple[int, int] | None) -> None:
        """Accept datagrams of the server from now on.

        :param peer: address of the RTSP connection's other end.
        :param source: a second accepted address, from the answer to SETUP; ignored if it is no IP address.
        :param ports: the server's RTP and RTCP ports; a packet to each opens firewalls. None if the server named none.
        """
        self._servers = {_plain(str(peer[0]))}
        with contextlib.suppress(ValueError):
            self._servers.add(_plain(str(ipaddress.ip_address(source.strip("[]")))))
        if ports is None:
            return
        rtp, rtcp = ((peer[0], port, *peer[2:]) for port in ports)
        self._remote = (rtp, rtcp)
        for one, data, address in zip(self.sockets, OPENERS, self._remote, strict=True):
            with contextlib.suppress(OSError):
                one.sendto(data, address)

    def receive(self) -> list[Received]:
        """The received packets, RTCP first, each kind in order of arrival. Does not wait."""
        packets: list[Received] = []
        self._drain(self.rtcp, "rtcp", MOST_RTCP, packets)
        self._drain(self.rtp, "rtp", MOST_RTP, packets)
        return packets

    def _drain(self, one: socket.socket, kind: Literal["rtp", "rtcp"], most: int, packets: list[Received]) -> None:
        for _ in range(most):
            try:
                size, sender = one.recvfrom_into(self._view)
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error about a datagram sent earlier
            if size and _plain(sender[0]) in self._servers:
                packets.append(Received(kind, bytes(self._view[:size]), self._clock()))

    def send_rtcp(self, data: bytes) -> None:
        """Send a report to the server's RTCP port. Does nothing if the server named no port; errors are ignored."""
        if self._remote is not None:
            with contextlib.suppress(OSError):
                self.rtcp.sendto(data, self._remote[1])

    def close(self) -> None:
        """Close both sockets. A second call does nothing."""
        self.rtp.close()
        self.rtcp.close()


def _pair(family: socket.AddressFamily, local: tuple[object, ...], buffer: int) -> tuple[socket.socket, socket.socket]:
    for _ in range(TRIES):
        pair = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(2)]
        try:
            for one in pair:
                one.setblocking(False)
            pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            pair[0].bind((local[0], 0, *local[2:]))
            port = int(pair[0].getsockname()[1])
            if port % 2 == 0:
                pair[1].bind((local[0], port + 1, *local[2:]))
                return pair[0], pair[1]
        except OSError:
            pass  # the next port is taken
        except BaseException:
            _close(pair)
            raise
        _close(pair)
    raise SourceError("no two UDP ports side by side are free on this machine")


def _close(pair: list[socket.socket]) -> None:
    for one in pair:
        one.close()


def _plain(address: str) -> str:
    """An address without its zone, and in IPv4 form if it is an IPv4 address mapped into IPv6."""
    return address.partition("%")[0].removeprefix("::ffff:")
