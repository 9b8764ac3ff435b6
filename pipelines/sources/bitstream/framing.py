"""Splits a container's packets into NAL units, by start codes (transport streams) or lengths (mp4, Matroska)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

START = b"\0\0\1"
MAX_NAL_BYTES = 1 << 13
"""Bytes that are read of a NAL unit: parameter sets are shorter, and only the header of a slice is needed."""
MAX_NALS = 64
"""NAL units that are read of a packet: the first slice is one of the first."""


class NalFraming:
    """How the packets of one stream delimit their NAL units, and the parameter sets from the container's header.

    :param length_size: bytes of the length before each NAL unit; 0 if start codes delimit them.
    :param parameter_sets: NAL units without start codes.
    """

    def __init__(self, length_size: int, parameter_sets: list[bytes]) -> None:
        self.parameter_sets = parameter_sets
        self._length_size = length_size

    def nals(self, data: bytes) -> Iterator[bytes]:
        """The first MAX_NALS NAL units of a packet, without start codes, each cut to MAX_NAL_BYTES."""
        found = _behind_lengths(data, self._length_size) if self._length_size else _behind_start_codes(data)
        return islice(found, MAX_NALS)


def h264_framing(extradata: bytes | None) -> NalFraming:
    """The framing of an H.264 stream.

    :param extradata: an avcC box (ISO 14496-15, 5.3.3.1), parameter sets with start codes, or nothing.
    """
    if not extradata or extradata[0] != 1 or len(extradata) < 7:
        return NalFraming(0, list(_behind_start_codes(extradata or b"")))
    sets: list[bytes] = []
    count, at = extradata[5] & 31, 6
    for _ in range(2):
        at = _take(extradata, at, count, sets)
        count, at = (extradata[at], at + 1) if at < len(extradata) else (0, at)
    return NalFraming((extradata[4] & 3) + 1, sets)


def h265_framing(extradata: bytes | None) -> NalFraming:
    """The framing of an H.265 stream.

    :param extradata: an hvcC box (ISO 14496-15, 8.3.3.1), parameter sets with start codes, or nothing.
    """
    if not extradata or len(extradata) < 23 or extradata.startswith((b"\0\0\1", b"\0\0\0\1")):
        return NalFraming(0, list(_behind_start_codes(extradata or b"")))
    sets: list[bytes] = []
    at = 23
    for _ in range(extradata[22]):
        at = _take(extradata, at + 3, int.from_bytes(extradata[at + 1 : at + 3], "big"), sets)
    return NalFraming((extradata[21] & 3) + 1, sets)


def _take(data: bytes, at: int, count: int, sets: list[bytes]) -> int:
    """Append to `sets` the `count` NAL units from byte `at` on, each after a length of 16 bits. Returns the end of the last."""
    for _ in range(count):
        size = int.from_bytes(data[at : at + 2], "big")
        sets.append(data[at + 2 : at + 2 + size])
        at += 2 + size
        if at > len(data):
            break
    return at


def _behind_lengths(data: bytes, length_size: int) -> Iterator[bytes]:
    at = 0
    while at + length_size < len(data):
        begin = at + length_size
        at = begin + int.from_bytes(data[at:begin], "big")
        yield data[begin : min(at, begin + MAX_NAL_BYTES)]


def _behind_start_codes(data: bytes) -> Iterator[bytes]:
    at = data.find(START)
    while at >= 0:
        begin = at + len(START)
        at = data.find(START, begin)
        yield data[begin : at if 0 <= at < begin + MAX_NAL_BYTES else begin + MAX_NAL_BYTES]
