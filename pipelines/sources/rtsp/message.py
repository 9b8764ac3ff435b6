"""RTSP messages (RFC 2326, sections 4 to 7 and 10.12), and the parser of a connection's bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.errors import SourceError
from pipelines.sources.rtsp.url import CONTROL

MAX_HEAD = 64 << 10
"""Most bytes of a start line with its headers; real ones have 2 KiB at most."""
MAX_LINES = 100
MAX_BODY = 1 << 20
"""Most bytes of a body. A session description has 1 to 4 KiB, one with every profile of a large recorder 100 KiB."""
MAX_STRAY = 256
"""Most CR and LF bytes between two messages. Some cameras add them to a body without counting them."""
DIGITS = 8
"""Most digits of a Content-Length. A longer one is refused before it is parsed."""

STATUS_LINE = re.compile(r"RTSP/\d\.\d[ \t]+(\d{3})(?:[ \t]+(.*))?")
REQUEST_LINE = re.compile(r"([A-Za-z_]{1,32})[ \t]+(\S+)[ \t]+RTSP/\d\.\d")
LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
DOLLAR = 0x24


class ProtocolError(SourceError):
    """The received bytes are no RTSP, or exceed a limit. A retry may succeed."""


@dataclass(frozen=True, slots=True)
class Headers:
    """Header fields in order. Names are case-insensitive; a name may occur several times."""

    fields: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        """The first value of the header `name`, or `default`."""
        return next(iter(self.all(name)), default)

    def all(self, name: str) -> list[str]:
        """All values of the header `name`."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class RtspRequest:
    """A request of the client or of the server. `uri` has no user information."""

    method: str
    uri: str
    # Not in the repr, because of the Authorization header.
    headers: Headers = field(default=Headers(), repr=False)
    body: bytes = b""

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return _encoded(f"{self.method} {self.uri} RTSP/1.0", self.headers, self.body)


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the server or of the client."""

    status: int
    reason: str = ""
    headers: Headers = field(default=Headers(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return _encoded(f"RTSP/1.0 {self.status} {self.reason}", self.headers, self.body)


@dataclass(frozen=True, slots=True)
class Interleaved:
    """An interleaved frame: an RTP or RTCP packet on a channel (0-255) of the RTSP connection."""

    channel: int
    data: bytes = field(repr=False)

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return b"$" + bytes((self.channel,)) + len(self.data).to_bytes(2, "big") + self.data


RtspItem = RtspRequest | Response | Interleaved


def _encoded(start: str, headers: Headers, body: bytes) -> bytes:
    fields = headers.fields + ((("Content-Length", str(len(body))),) if body else ())
    # Control characters become spaces, so that no value can inject a header.
    lines = [CONTROL.sub(" ", line) for line in (start, *(f"{name}: {value}" for name, value in fields))]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Wire:
    """A parser: `feed` takes bytes, iteration gives the complete items. Thread: one, the owner's.

    After a broken-off iteration the next one continues. At most one incomplete item is kept. Every byte is scanned once and
    copied once, however the bytes are split.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # first unconsumed byte
        self._seen = 0  # there is no end of a line before this byte
        self._lines: list[str] = []
        self._size = 0  # bytes of self._lines
        self._head: RtspRequest | Response | None = None  # its body is incomplete
        self._body = 0
        self._stray = 0

    @property
    def pending(self) -> int:
        """Number of bytes that are not consumed yet."""
        return len(self._data) - self._at

    def feed(self, data: bytes | memoryview) -> None:
        """Append received bytes. Consumed ones are removed only here, so that the buffer moves once for many items."""
        del self._data[: self._at]
        self._seen = max(self._seen - self._at, 0)
        self._at = 0
        self._data += data

    def __iter__(self) -> Iterator[RtspItem]:
        """Consume and yield the complete items.

        :raises ProtocolError: if the bytes are no RTSP or exceed a limit. The parser is unusable afterwards.
        """
        while (item := self._next()) is not None:
            yield item

    def _next(self) -> RtspItem | None:
        if self._head is None and not self._lines:
            self._skip_stray()
            if self.pending and self._data[self._at] == DOLLAR:
                return self._interleaved()
        if self._head is None and not self._read_head():
            return None
        if self._head is None or self.pending < self._body:
            return None
        head, body = self._head, self._take(self._body)
        self._head = None
        if isinstance(head, RtspRequest):
            return RtspRequest(head.method, head.uri, head.headers, body)
        return Response(head.status, head.reason, head.headers, body)

    def _take(self, size: int) -> bytes:
        data = bytes(memoryview(self._data)[self._at : self._at + size])
        self._at += size
        return data

    def _skip_stray(self) -> None:
        while self.pending and self._data[self._at] in b"\r\n":
            self._at += 1
            self._stray += 1
            if self._stray > MAX_STRAY:
                raise ProtocolError("the camera does not stop sending empty lines")
        if self.pending:
            self._stray = 0

    def _interleaved(self) -> Interleaved | None:
        if self.pending < 4:
            return None
        at = self._at
        channel, size = self._data[at + 1], self._data[at + 2] << 8 | self._data[at + 3]
        if self.pending < 4 + size:
            return None
        self._at += 4
        return Interleaved(channel, self._take(size))

    def _read_head(self) -> bool:
        """Consume lines up to the empty one. Returns whether the head (start line and headers) is complete now."""
        if self.pending and not self._lines and self._data[self._at] not in LETTERS:
            raise ProtocolError("the camera sent neither a message nor a packet: the connection is out of step")
        while (end := self._data.find(b"\n", max(self._seen, self._at))) >= 0:
            line = self._take(end + 1 - self._at).rstrip(b"\r\n")
            self._size += len(line) + 2
            self._check_head(self._size)
            if not line:
                self._finish_head()
                return True
            # Control characters become spaces: in an echoed value they could inject a header into our requests.
            self._lines.append(CONTROL.sub(" ", line.decode(errors="replace")))
        self._seen = len(self._data)
        self._check_head(self._size + self.pending)
        return False

    def _check_head(self, size: int) -> None:
        if size > MAX_HEAD or len(self._lines) > MAX_LINES:
            raise ProtocolError(f"the camera sent a header of more than {MAX_HEAD >> 10} KiB or {MAX_LINES} lines")

    def _finish_head(self) -> None:
        start, *lines = self._lines
        self._lines, self._size = [], 0
        headers = _headers(lines)
        self._body = _body_size(headers)
        if answer := STATUS_LINE.fullmatch(start):
            self._head = Response(int(answer[1]), (answer[2] or "").strip(), headers)
        elif request := REQUEST_LINE.fullmatch(start):
            self._head = RtspRequest(request[1].upper(), request[2], headers)
        else:
            other = "HTTP" if start.startswith("HTTP/") else "something else"
            raise ProtocolError(f"the server speaks {other} on this port, not RTSP")


def _headers(lines: list[str]) -> Headers:
    """The header fields in `lines`. A line that begins with white space continues the previous field; a line without a colon
    is ignored."""
    fields: list[tuple[str, list[str]]] = []
    for line in lines:
        name, colon, value = line.partition(":")
        if line[0] in " \t":
            if fields:
                fields[-1][1].append(line.strip())
        elif colon:
            fields.append((name.strip(), [value.strip()]))
    return Headers(tuple((name, " ".join(parts)) for name, parts in fields))


def _body_size(headers: Headers) -> int:
    values = set(headers.all("Content-Length"))
    if not values:
        return 0
    text = values.pop()
    if values or not (text.isascii() and text.isdigit()):
        raise ProtocolError("the camera sent a Content-Length that is no number")
    if len(text.lstrip("0")) > DIGITS or int(text) > MAX_BODY:
        raise ProtocolError(f"the camera announced a body of more than {MAX_BODY >> 20} MiB")
    return int(text)
