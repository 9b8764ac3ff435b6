"""Supplemental information: what a recovery point says (H.264 D.1.8, H.265 D.2.8)."""

from __future__ import annotations

from pipelines.sources.bitstream.bits import Bits, Nonsense, unescaped

RECOVERY_POINT = 6
MOST_MESSAGES = 32
"""Messages looked through in one NAL unit."""
LOOKED_AT = 4096
"""Octets of one NAL unit looked at. Encoders put the recovery point before their long texts."""


def recovery_point(messages: bytes) -> int | None:
    """The count in a recovery point, None if there is none in `messages`, a NAL unit behind its header.

    H.264 codes it as ue(v), H.265 as se(v): nought is the same in both, and what is not nought is returned raw.
    """
    data = unescaped(messages[:LOOKED_AT])
    at = 0
    for _ in range(MOST_MESSAGES):
        kind, at = _long(data, at)
        size, at = _long(data, at)
        if at + size > len(data) or size == 0:
            return None
        if kind == RECOVERY_POINT:
            return _count(data[at : at + size])
        at += size
    return None


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number as SEI headers have it, octets of 255 and one more, and where it ends."""
    value = 0
    while at < len(data) and data[at] == 255:
        value += 255
        at += 1
    return (value + data[at], at + 1) if at < len(data) else (value, at)


def _count(payload: bytes) -> int | None:
    try:
        return Bits(payload[:8]).ue()
    except Nonsense:
        return None
