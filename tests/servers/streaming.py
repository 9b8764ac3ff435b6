"""A scripted RTSP server that sends packets, too: the test chooses each of them, so that it knows exactly the lost ones."""

from __future__ import annotations

import base64
import re
import socket
import ssl
import struct
from collections.abc import Sequence

from tests.servers.scripted import SDP, Asked, Reply, Script, Scripted, camera, frame, reply

UNIX_EPOCH = 2_208_988_800
"""Seconds from 1900, where NTP begins, to 1970."""


class Streaming(Scripted):
    """A camera with video as its first track; it comes over the client's transport, TCP or UDP.

    `send` and `report` are for the test's thread, from `until_playing` on; they block no longer than the network does.
    timeout_s: of the session, as the server says it.
    """

    def __init__(
        self, sdp: bytes, *, timeout_s: int = 60, tls: ssl.SSLContext | None = None, **replies: Script | Reply
    ) -> None:
        super().__init__(camera(sdp, **{"SETUP": self._set_up, **replies}), tls=tls)
        self._session = f"Session: 4711;timeout={timeout_s}"
        self._ports: list[int] = []

    def __enter__(self) -> Streaming:
        self._pair = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)]
        for one in self._pair:
            one.bind(("127.0.0.1", 0))
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for one in self._pair:
            one.close()

    def until_playing(self, times: int = 1) -> None:
        """Wait for the `times`-th PLAY."""
        self.until(lambda s: sum(one.method == "PLAY" for one in s.asked) >= times)

    def send(self, *packets: bytes) -> None:
        """RTP packets, one after the other."""
        self._send(0, packets)

    def report(self, *packets: bytes) -> None:
        """RTCP packets."""
        self._send(1, packets)

    def _send(self, channel: int, packets: tuple[bytes, ...]) -> None:
        if self._ports:
            for data in packets:
                self._pair[channel].sendto(data, ("127.0.0.1", self._ports[channel]))
        else:
            self.push(b"".join(frame(data, channel) for data in packets))

    def _set_up(self, asked: Asked) -> Reply:
        asking = asked.headers["transport"]
        ports = re.search(r"client_port=(\d+)-(\d+)", asking)
        if ports and asked.uri.endswith("trackID=0"):
            self._ports = [int(ports[1]), int(ports[2])]
        mine = "-".join(str(one.getsockname()[1]) for one in self._pair)
        answer = f"{asking};server_port={mine}" if ports else asking
        return reply(asked, 200, b"", f"Transport: {answer}", self._session)


def described(codec: str, sets: Sequence[bytes] = ()) -> bytes:
    """A description of a camera with video and sound; `sets`: its parameter sets."""
    h264, _, rest = SDP.partition(b"a=fmtp:96 ")
    lines = h264.replace(b"H264", codec.upper().encode()) + b"a=control:trackID=0\r\n" + rest.partition(b"trackID=0\r\n")[2]
    if not sets:
        return lines
    texts = [base64.b64encode(one).decode() for one in sets]
    if codec == "h264":
        values = f"sprop-parameter-sets={','.join(texts)}"
    else:
        values = ";".join(f"sprop-{name}={text}" for name, text in zip(("vps", "sps", "pps"), texts, strict=True))
    return lines.replace(b"a=control:trackID=0", f"a=fmtp:96 {values}\r\na=control:trackID=0".encode())


def sender_report(ssrc: int, unix_s: float, timestamp: int) -> bytes:
    """That the camera's clock was at `unix_s` when its RTP clock was at `timestamp`."""
    ntp = round((unix_s + UNIX_EPOCH) * 2**32)
    return struct.pack(">BBHIQIII", 0x80, 200, 6, ssrc, ntp, timestamp % 2**32, 0, 0)


def goodbye(ssrc: int) -> bytes:
    """The camera's stream has ended."""
    return struct.pack(">BBHI", 0x81, 203, 1, ssrc)
