"""Reads the markers of a JPEG (ISO 10918-1, annex B) without decoding it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

BEGIN, SCAN, END = b"\xff\xd8\xff", 0xDA, b"\xff\xd9"
NOT_SIZES = (0xC4, 0xC8, 0xCC)
"""Markers in the range of start-of-frame markers (table B.1) that do not start a frame."""
NO_LENGTH = (0x01, *range(0xD0, 0xD9))
"""Markers without a length."""


def header(data: bytes) -> tuple[tuple[int, int] | None, int]:
    """((width, height), offset of the first scan). The size is that of the first frame header; None if there is none.

    :raises IndexError, struct.error: if the data are cut off before the first scan.
    """
    size, at = None, 2
    while True:
        while data[at] != 0xFF or data[at + 1] in (0x00, 0xFF):
            at = data.find(b"\xff", at + 1)
            if at < 0:
                raise IndexError
        marker = data[at + 1]
        if marker == SCAN:
            return size, at
        if marker in NO_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if 0xC0 <= marker <= 0xCF and marker not in NOT_SIZES and size is None:
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = width, height
        at += 2 + length


def ends(data: bytes, scan: int) -> bool:
    """Whether an end marker follows the scan at this offset. Other data may follow the marker."""
    return data.rfind(END, scan) >= 0


def without_end(path: Path) -> bool:
    """Whether a file is a JPEG with no end marker. Reads the whole file only if its last two bytes are not the marker.

    :raises OSError: if it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(3) != BEGIN:
            return False
        file.seek(-2, os.SEEK_END)
        if file.read() == END:
            return False
        file.seek(0)
        data = file.read()
    try:
        return not ends(data, header(data)[1])
    except (IndexError, struct.error):
        return True
