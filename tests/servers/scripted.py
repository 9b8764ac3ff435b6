"""An RTSP server that runs a test's script, on 127.0.0.1, in one thread that ends with its `with`."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

HANG_UP = b"\0hang up"
"""A reply that ends the connection."""
SDP = b"""v=0\r
o=- 1 1 IN IP4 127.0.0.1\r
s=door\r
c=IN IP4 0.0.0.0\r
t=0 0\r
a=control:*\r
m=video 0 RTP/AVP 96\r
a=rtpmap:96 H264/90000\r
a=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0LAHtkA2D3n//AoACfxAAADAAEAAAMAMg8WLkg=,aMuDyyA=\r
a=control:trackID=0\r
m=audio 0 RTP/AVP 8\r
a=control:trackID=1\r
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the client; header names in lower case."""

    method: str
    uri: str
    headers: Mapping[str, str] = field(default_factory=dict)


Reply = bytes | None
Script = Callable[[Asked], Reply]


def reply(asked: Asked, status: int = 200, body: bytes = b"", *fields: str) -> bytes:
    """An answer to a request; each of `fields` is a whole header line."""
    lines = [f"RTSP/1.0 {status} Words", f"CSeq: {asked.headers.get('cseq', '')}", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def frame(data: bytes, channel: int = 0) -> bytes:
    """An interleaved frame."""
    return b"$" + bytes((channel,)) + len(data).to_bytes(2, "big") + data


def camera(sdp: bytes = SDP, **replies: Script | Reply) -> Script:
    """A camera that answers everything well, but for the methods that are named: a reply, or a function that makes it."""

    def answer(asked: Asked) -> Reply:
        if asked.method in replies:
            own = replies[asked.method]
            return own(asked) if callable(own) else own
        match asked.method:
            case "OPTIONS":
                return reply(asked, 200, b"", "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER")
            case "DESCRIBE":
                return reply(asked, 200, sdp, "Content-Type: application/sdp", f"Content-Base: {asked.uri}/")
            case "SETUP":
                asking = asked.headers["transport"]
                port = f"{asking};server_port=9-10" if "client_port" in asking else asking
                return reply(asked, 200, b"", f"Transport: {port}", "Session: 4711;timeout=60")
            case _:
                return reply(asked)

    return answer


class Scripted:
    """Serves one connection after the other. `script` gives the bytes for each request: None for silence, HANG_UP.

    `asked` has all requests, `said` everything else: frames as (channel, data), answers to requests of the script.
    """

    def __init__(self, script: Script, *, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.asked: list[Asked] = []
        self.said: list[tuple[int, bytes] | bytes] = []
        self.port = 0
        self._tls = tls
        self._changed = threading.Condition()
        self._client: socket.socket | None = None
        self._ending = False

    def __enter__(self) -> Scripted:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="scripted-rtsp")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
        self.hang_up()
        self._thread.join()
        self._listener.close()

    def url(self, path: str = "/cam", who: str = "", scheme: str = "rtsp") -> str:
        """An address of this server; `who` is empty or a percent-encoded "user:password"."""
        return f"{scheme}://{who and who + '@'}127.0.0.1:{self.port}{path}"

    @property
    def methods(self) -> list[str]:
        """Of all requests so far."""
        with self._changed:
            return [one.method for one in self.asked]

    def push(self, data: bytes) -> None:
        """Send to the client that is connected. Thread: the test's.

        :raises OSError: if none is, or it has gone.
        """
        client = self._client
        if client is None:
            raise BrokenPipeError("no client is connected")
        client.sendall(data)

    def hang_up(self) -> None:
        """End the connection that is open, if one is."""
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def until(self, wanted: Callable[[Scripted], bool]) -> None:
        """Wait until the server's state meets the condition."""
        with self._changed:
            assert self._changed.wait_for(lambda: wanted(self), 20), f"asked: {self.asked}, said: {self.said}"

    def _serve(self) -> None:
        while not self._ending:
            with contextlib.suppress(OSError):  # faults of the clients' connections are not the server's
                plain, _ = self._listener.accept()
                with plain:
                    self._client = self._tls.wrap_socket(plain, server_side=True) if self._tls else plain
                    with self._client:
                        self._converse(self._client)
            self._client = None

    def _converse(self, client: socket.socket) -> None:
        data = b""
        while not self._ending:
            part = client.recv(1 << 16)
            if not part:
                return
            data += part
            while (item := _item(data)) is not None:
                what, data = item
                answer = self._note(what)
                if answer == HANG_UP:
                    return
                if answer:
                    client.sendall(answer)

    def _note(self, what: Asked | tuple[int, bytes] | bytes) -> Reply:
        with self._changed:
            if isinstance(what, Asked):
                self.asked.append(what)
            else:
                self.said.append(what)
            self._changed.notify_all()
        return self.script(what) if isinstance(what, Asked) else None


def _item(data: bytes) -> tuple[Asked | tuple[int, bytes] | bytes, bytes] | None:
    """The first item of a client's bytes, and the rest."""
    if data[:1] == b"$":
        size = int.from_bytes(data[2:4], "big")
        return ((data[1], data[4 : 4 + size]), data[4 + size :]) if len(data) >= max(4 + size, 4) else None
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    start, *lines = head.decode().split("\r\n")
    if start.startswith("RTSP/"):
        return head, rest
    method, uri, _ = start.split(" ")
    fields = (line.partition(": ") for line in lines)
    return Asked(method, uri, {name.lower(): value for name, _, value in fields}), rest
