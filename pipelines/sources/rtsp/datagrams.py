"""The two UDP ports of a track: RTP on an even one, RTCP on the next (RFC 3550, section 11)."""

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
"""For an even port whose next one is free, too."""
RECEIVE_BUFFER = 4 << 20
"""Asked for; the kernel gives what net.core.rmem_max allows. A key picture of 4K comes as 1000 packets at once."""
MOST_RTP = 512
"""Datagrams of one `receive`, so that a flood cannot hold the caller."""
MOST_RTCP = 32
DATAGRAM = 65536
OPENERS = (b"\x80" + bytes(11), b"\x80\xc9\x00\x01" + bytes(4))
"""An RTP packet and a receiver report without content: enough for a firewall, and no server takes offence."""


class Datagrams:
    """Bound, non-blocking. Only datagrams from the server's addresses are taken. Thread: one, its owner's.

    `local` is the address (as `getsockname` has it) of the connection over which the track is set up.

    :raises SourceError: if there are no free ports.
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
        """Of RTP; RTCP has the next."""

    @property
    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """To wait for."""
        return self.rtp, self.rtcp

    def expect(self, peer: tuple[object, ...], source: str, ports: tuple[int, int] | None) -> None:
        """Take what comes from the server: the `peer` of its connection, and `source` if that is an address.

        Opens a firewall on the way to its ports, where it named them.
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
        """What is waiting: reports, then media in the order in which it came. Does not wait."""
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
                continue  # an ICMP message about something that was sent
            if size and _plain(sender[0]) in self._servers:
                packets.append(Received(kind, bytes(self._view[:size]), self._clock()))

    def send_rtcp(self, data: bytes) -> None:
        """Send a report to the server's RTCP port; nothing without one, and nothing is said if it gets lost."""
        if self._remote is not None:
            with contextlib.suppress(OSError):
                self.rtcp.sendto(data, self._remote[1])

    def close(self) -> None:
        """Close both. Twice is fine."""
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
    """An address without its zone, and IPv4 as such where IPv6 carries it."""
    return address.partition("%")[0].removeprefix("::ffff:")
