"""Detects truncated files, and files that change while they are read.

Most containers state the length of a part near its beginning, so truncation is detected before the first picture is read.
It cannot be detected in raw H.264 and HEVC, nor if a file ends exactly between two equal parts (transport packets, clusters
of a live recording).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import av.error
from av.packet import Packet

from pipelines.sources.files.ts_gaps import TsLayout

PARTS = 100_000
"""Most parts of a file that are read: those of a recording of one day, which takes 0.1 s. It bounds the time for a file of
empty parts."""
UNKNOWN_SIZE = (0, 0xFFFFFFFF)
"""Lengths in an AVI that its writer has not filled in."""
BOXES = frozenset({b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"skip", b"wide", b"pnot", b"sidx", b"uuid"})
PICTURES_IN = frozenset({b"moov", b"moof", b"mdat"})
"""Boxes without which pictures are lost."""
EBML, SEGMENT = 0x1A45DFA3, 0x18538067
PACK, LONGEST = b"\0\0\1\xba", 65_541
"""The start code of a pack in an MPEG program stream, and the most bytes of a packet in it."""
TS_SIZES = ((188, 0), (192, 4), (204, 0))
"""(length of a transport packet, offset of its sync byte): plain, with time codes (M2TS), with error correction."""
FLAG_DELAY = 3
"""Number of last packets with a flag that counts: a parser may set it one or two packets late."""


class TruncationCheck:
    """Checks one reading of a file for truncation and changes. Thread: the source's.

    Data that are appended after the opening are not read: a recorder might write faster than they are read.

    :raises OSError: if there is no such file.
    """

    def __init__(self, path: Path) -> None:
        self.cut = cut_short(path)
        self.last_is_cut = False
        """Whether `within` has yielded the last packet of a truncated file, which may be incomplete."""
        self._path = path
        self._size = path.stat().st_size
        self._flagged: deque[bool] = deque(maxlen=FLAG_DELAY)

    def within(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        """The packets that begin before the end that the file had at its opening, without empty ones.

        The iterator reads one packet ahead, to detect the last one.
        """
        held: Packet | None = None
        try:
            for packet in packets:
                if packet.pos is not None and packet.pos >= self._size:
                    break
                if not packet.size:
                    continue  # the mark of the end; the decoder's loop adds one itself
                self._flagged.append(packet.is_corrupt)
                if held is not None:
                    yield held
                held = packet
        except (av.error.FFmpegError, OSError):
            if held is not None:
                yield held
            raise
        self.last_is_cut = self.cut is not None
        if held is not None:
            yield held

    def lost(self, *, lossy: bool) -> str | None:
        """A message about the missing part of the file, once its end has been reached; None if nothing is missing.

        lossy: packets may also be flagged because of transmission losses, as in transport streams.
        """
        size = self._path.stat().st_size if self._path.exists() else self._size
        if size > self._size:
            return f"was still being written: only the {self._size} bytes that it had when it was opened were read"
        if size < self._size:
            return f"became shorter while it was read: {self._size} bytes when it was opened, {size} at the end"
        if self.cut is not None:
            return f"is truncated: {self.cut}; the rest was read"
        if any(self._flagged) and not lossy:
            return "is truncated: it ends in the middle of a packet; the rest was read"
        return None


def cut_short(path: Path) -> str | None:
    """A message about the place at which a file is cut off; None if it is whole, cannot be read, or its format cannot tell."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(1024)
            check = CUT_CHECKS.get(file_kind(head))
            return check(file, size) if check is not None and size else None
    except OSError:
        return None


def without_index(path: Path) -> bool:
    """Whether a file of the MP4 family has no index (moov), which recorders write last, and is not fragmented."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            kinds = {kind for kind, _, end in _boxes(file, size) if end <= size}
            return file_kind(_at(file, 0, 8)) == "boxes" and not kinds & {b"moov", b"moof"}
    except OSError:
        return False


CutCheck = Callable[[BinaryIO, int], str | None]
"""From an open file and its size to a message about its truncation; None if it is whole."""


def file_kind(head: bytes) -> str | None:
    """The kind of a file by its first bytes (at least 1,024 if it has them): a key of CUT_CHECKS, or None for other kinds."""
    if head[4:8] in BOXES:
        return "boxes"
    if head[:4] == EBML.to_bytes(4, "big"):
        return "matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    if head[:3] == b"FLV":
        return "flv"
    if head[:4] == b"OggS":
        return "ogg"
    if head[:3] == b"\xff\xd8\xff":
        return "jpeg"
    if head[:4] == PACK:
        return "ps"
    if _ts_size(head) is not None:
        return "ts"
    return None


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    """At most `count` bytes of a file from an offset on."""
    return os.pread(file.fileno(), count, max(offset, 0))


def _overrun(part: str, end: int, size: int) -> str:
    """The message about a part that ends behind the end of the file."""
    return f"its {part} should end at byte {end}, the file ends at byte {size}"


# The MP4 family: a sequence of boxes (ISO/IEC 14496-12, 4.2).


def _boxes(file: BinaryIO, size: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, begin, end) of each box, up to the first that exceeds the file or is not a box."""
    at = 0
    for _ in range(PARTS):
        head = _at(file, at, 16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        elif length == 0:
            length = size - at  # the box extends to the end of the file
        if len(head) < 8 or length < 8 or not (kind.isascii() and kind.decode("ascii").isprintable()):
            return
        yield kind, at, at + length
        at += length


def _cut_boxes(file: BinaryIO, size: int) -> str | None:
    last = b""
    for kind, _, end in _boxes(file, size):
        if end > size:
            return _overrun(f"part {kind.decode('ascii')!r}", end, size) if kind in PICTURES_IN else None
        last = kind
    return "its last fragment has no pictures any more" if last == b"moof" else None


# Matroska and WebM: a segment of elements (RFC 8794, RFC 9559). In recordings of live streams their lengths are unknown.


def _element(file: BinaryIO, at: int) -> tuple[int, int, int | None] | None:
    """(id, begin of the content, length of the content or None if unknown) of the element at `at`; None if its head is
    incomplete or invalid."""
    head = _at(file, at, 12)
    if len(head) < 2 or not head[0]:
        return None
    id_length = 9 - head[0].bit_length()
    rest = head[id_length:]
    if id_length > 4 or not rest or not rest[0]:
        return None
    length = 9 - rest[0].bit_length()
    if len(rest) < length:
        return None
    value = int.from_bytes(rest[:length], "big") & ((1 << 7 * length) - 1)
    unknown = value == (1 << 7 * length) - 1
    return int.from_bytes(head[:id_length], "big"), at + id_length + length, None if unknown else value


def _cut_matroska(file: BinaryIO, size: int) -> str | None:
    at, where = 0, "segment"
    for _ in range(PARTS):
        if at == size:
            return None
        found = _element(file, at)
        if found is None:
            # A truncated head is shorter than the longest head (12 bytes); an invalid head before that is damage.
            return _overrun(where, size + 1, size) if size - at < 12 else None
        kind, begin, length = found
        if length is None:
            at = begin  # continue with the content of a segment or cluster of unknown length
            continue
        if begin + length > size:
            return _overrun("last cluster" if kind not in (EBML, SEGMENT) else "segment", begin + length, size)
        if kind == SEGMENT:
            return None
        at = begin + length
    return None


# Other formats.


def _cut_avi(file: BinaryIO, size: int) -> str | None:
    at = 0
    for _ in range(PARTS):
        head = _at(file, at, 12)
        length = int.from_bytes(head[4:8], "little")
        if head[:4] != b"RIFF" or head[8:12] not in (b"AVI ", b"AVIX") or length in UNKNOWN_SIZE:
            return None
        if at + length > size:  # without the 8 bytes of its head, which some writers include in the length
            return _overrun("RIFF part", at + 8 + length, size)
        at += 8 + length + length % 2
    return None


def _cut_flv(file: BinaryIO, size: int) -> str | None:
    """Each tag of an FLV is followed by its length: the last four bytes must be the length of a whole tag."""
    length = int.from_bytes(_at(file, size - 4, 4), "big")
    head = _at(file, size - 4 - length, 4) if 11 <= length <= size - 13 else b""
    if len(head) == 4 and head[0] & 0x1F in (8, 9, 18) and int.from_bytes(head[1:4], "big") == length - 11:
        return None
    return None if size <= 13 else "it does not end with a whole tag"


def _cut_ogg(file: BinaryIO, size: int) -> str | None:
    begin = max(size - 70_000, 0)  # a page has at most 65,307 bytes
    tail = _at(file, begin, 70_000)
    at = tail.rfind(b"OggS")
    lengths = tail[at + 27 : at + 27 + tail[at + 26]] if 0 <= at < len(tail) - 26 else b""
    end = begin + at + 27 + (tail[at + 26] if lengths else 1) + sum(lengths)
    return _overrun("last page", end, size) if at >= 0 and end > size else None


def _cut_jpeg(file: BinaryIO, size: int) -> str | None:
    tail = _at(file, size - 64, 64).rstrip(b"\0\r\n")
    return None if tail.endswith(b"\xff\xd9") else "its last picture has no end"


def _cut_ps(file: BinaryIO, size: int) -> str | None:
    """Follows the packets from the last pack on by their lengths (ISO/IEC 13818-1, 2.5.3; MPEG-1 packs have no stuffing)."""
    begin = max(size - 2 * LONGEST, 0)
    tail = _at(file, begin, 2 * LONGEST)
    at = tail.rfind(PACK)
    if not 0 <= at < len(tail) - 14:
        return None
    at += 14 + (tail[at + 13] & 7) if tail[at + 4] & 0xC0 == 0x40 else 12
    while at + 6 <= len(tail) and tail[at : at + 3] == PACK[:3] and tail[at + 3] > 0xBA:
        at += 6 + int.from_bytes(tail[at + 4 : at + 6], "big")
    return _overrun("last packet", begin + at, size) if at > len(tail) else None


def _ts_size(head: bytes) -> tuple[int, int] | None:
    """The entry of TS_SIZES that fits the first bytes of a file; None if they are not transport packets."""
    for length, sync in TS_SIZES:
        syncs = head[sync : 5 * length : length]
        if len(syncs) >= 3 and set(syncs) == {0x47}:
            return length, sync
    return None


def ts_layout(path: Path) -> TsLayout | None:
    """The layout of the transport packets of a file; None if it does not begin with transport packets."""
    try:
        with path.open("rb", buffering=0) as file:
            found = _ts_size(_at(file, 0, 1024))
    except OSError:
        return None
    return TsLayout(*found) if found is not None else None


def _cut_ts(file: BinaryIO, size: int) -> str | None:
    found = _ts_size(_at(file, 0, 1024))
    if found is None:
        return None
    length, sync = found
    rest = size % length
    begins = _at(file, size - rest - length + sync, length + 1)[::length]
    # Other data behind the last packet are not a truncated packet.
    return "its last transport packet is not whole" if rest > sync and begins == b"\x47\x47" else None


CUT_CHECKS: dict[str | None, CutCheck] = {
    "boxes": _cut_boxes,
    "matroska": _cut_matroska,
    "avi": _cut_avi,
    "flv": _cut_flv,
    "ogg": _cut_ogg,
    "jpeg": _cut_jpeg,
    "ps": _cut_ps,
    "ts": _cut_ts,
}
"""Check for truncation of each kind of file."""
