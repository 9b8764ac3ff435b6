"""RTSP messages (RFC 2326, sections 4 to 7 and 10.12), and the parser that takes them out of a connection's bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pipelines.errors import SourceError

MAX_HEAD = 64 << 10
"""Bytes of a start line and its headers: real ones have 2 KiB at most."""
MAX_LINES = 100
MAX_BODY = 1 << 20
"""Bytes: a session description has 1 to 4 KiB, with every profile of a large recorder 100."""
MAX_STRAY = 256
"""CR and LF bytes between two messages: some cameras end a body with them and do not count them."""
DIGITS = 8
"""Of a Content-Length; more is too large without being read as a number."""

STATUS_LINE = re.compile(r"RTSP/\d\.\d[ \t]+(\d{3})(?:[ \t]+(.*))?")
REQUEST_LINE = re.compile(r"([A-Za-z_]{1,32})[ \t]+(\S+)[ \t]+RTSP/\d\.\d")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
DOLLAR = 0x24


class ProtocolError(SourceError):
    """What came over the connection is no RTSP, or more of it than is believed. A retry may find it mended."""


@dataclass(frozen=True, slots=True)
class Headers:
    """Header fields in their order; names are compared without case, several of one name are kept."""

    fields: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        """The first value of this name."""
        return next(iter(self.all(name)), default)

    def all(self, name: str) -> list[str]:
        """Every value of this name."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


@dataclass(frozen=True, slots=True)
class RtspRequest:
    """A request, ours or the server's. `uri` holds no user information."""

    method: str
    uri: str
    # Without its values in the repr: Authorization is one of them.
    headers: Headers = field(default=Headers(), repr=False)
    body: bytes = b""

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return _encoded(f"{self.method} {self.uri} RTSP/1.0", self.headers, self.body)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, the server's or ours."""

    status: int
    reason: str = ""
    headers: Headers = field(default=Headers(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return _encoded(f"RTSP/1.0 {self.status} {self.reason}", self.headers, self.body)


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A frame between the messages: an RTP or RTCP packet, as its channel (0-255) says."""

    channel: int
    data: bytes = field(repr=False)

    def encode(self) -> bytes:
        """The bytes for the connection."""
        return b"$" + bytes((self.channel,)) + len(self.data).to_bytes(2, "big") + self.data


Item = RtspRequest | Response | Interleaved


def _encoded(start: str, headers: Headers, body: bytes) -> bytes:
    fields = headers.fields + ((("Content-Length", str(len(body))),) if body else ())
    # No value can begin a line of its own, wherever it came from.
    lines = [CONTROL.sub(" ", line) for line in (start, *(f"{name}: {value}" for name, value in fields))]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Wire:
    """Bytes in, complete items out: `feed`, then iterate until there are no more.

    What is left of an iteration that was broken off comes with the next. At most one incomplete item is kept, and every
    byte is looked at once and copied once, however the bytes were cut.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # first byte that is not consumed
        self._seen = 0  # up to here no end of a line was found
        self._lines: list[str] = []
        self._size = 0  # bytes of self._lines
        self._head: RtspRequest | Response | None = None  # waits for its body
        self._body = 0
        self._stray = 0

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their item."""
        return len(self._data) - self._at

    def feed(self, data: bytes | memoryview) -> None:
        """Append what was received. The buffer is moved here only: once for many items."""
        del self._data[: self._at]
        self._seen = max(self._seen - self._at, 0)
        self._at = 0
        self._data += data

    def __iter__(self) -> Iterator[Item]:
        """The complete items.

        :raises ProtocolError: if the bytes are no RTSP or break a bound. Nothing after it can be trusted.
        """
        while (item := self._next()) is not None:
            yield item

    def _next(self) -> Item | None:
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
                raise ProtocolError("the camera sends empty lines without an end")
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
        """Take lines up to the empty one; whether a head is complete now."""
        if self.pending and not self._lines and self._data[self._at] not in LETTERS:
            raise ProtocolError("what the camera sends is neither a message nor a packet: the connection is out of step")
        while (end := self._data.find(b"\n", max(self._seen, self._at))) >= 0:
            line = self._take(end + 1 - self._at).rstrip(b"\r\n")
            self._size += len(line) + 2
            self._check_head(self._size)
            if not line:
                self._finish_head()
                return True
            # What is cut here is no text: a control character could begin a header of ours that echoes it.
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
    """Fields of lines; one that begins with white space goes on with the one before, one without a colon is passed over."""
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
