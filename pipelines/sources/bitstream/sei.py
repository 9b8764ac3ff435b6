"""Reads the recovery point from supplemental enhancement information, SEI (H.264 D.1.8, H.265 D.2.8)."""

from __future__ import annotations

from pipelines.sources.bitstream.bits import Bits, InvalidBits, unescaped

RECOVERY_POINT = 6
MAX_MESSAGES = 32
"""SEI messages that are read of one NAL unit."""
MAX_BYTES = 4096
"""Bytes that are read of one NAL unit. Encoders put the recovery point before their long texts."""


def recovery_point(messages: bytes) -> int | None:
    """The count of the first recovery point in `messages`; None without one.

    H.264 codes the count as ue(v), H.265 as se(v). Zero is the same in both; another value is returned as ue(v).

    :param messages: an SEI NAL unit without its header.
    """
    data = unescaped(messages[:MAX_BYTES])
    at = 0
    for _ in range(MAX_MESSAGES):
        kind, at = _long(data, at)
        size, at = _long(data, at)
        if at + size > len(data) or size == 0:
            return None
        if kind == RECOVERY_POINT:
            return _count(data[at : at + size])
        at += size
    return None


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of an SEI header (bytes of 255 and a last byte, summed) at byte `at`, and the end of its bytes."""
    value = 0
    while at < len(data) and data[at] == 255:
        value += 255
        at += 1
    return (value + data[at], at + 1) if at < len(data) else (value, at)


def _count(payload: bytes) -> int | None:
    try:
        return Bits(payload[:8]).ue()
    except InvalidBits:
        return None
