"""Small files that announce, or unpack to, far more than they are."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from pathlib import Path

from tests.clips import numbered


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes, *, bits: int = 8, color: int = 2, beside: bytes = b"") -> bytes:
    """A PNG with the (compressed) data and, before them, the chunks `beside`; color 2 is RGB, 6 has alpha."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + beside + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


@cache
def zeros(count: int) -> bytes:
    """So many zeros, compressed to a thousandth."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(min(1 << 20, count - k))) for k in range(0, count, 1 << 20)]
    return b"".join([*parts, packer.flush()])


def small_png(beside: bytes = b"") -> bytes:
    """A good picture of 64x64, with chunks beside it."""
    return png(64, 64, zlib.compress((b"\0" + b"\x80" * 192) * 64), beside=beside)


def profile(data: bytes) -> bytes:
    """A colour profile in a PNG; `data` is compressed."""
    return _chunk(b"iCCP", b"Display\0\0" + data)


def comment(data: bytes) -> bytes:
    """A text in a PNG; `data` is compressed."""
    return _chunk(b"zTXt", b"Comment\0\0" + data)


def gif(width: int, height: int) -> bytes:
    """A screen of this size with one dot in it."""
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(3) + b"\xff" * 3
    return screen + b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00;"


def bmp(width: int, height: int) -> bytes:
    """A header of this size and a little after it."""
    return b"BM" + struct.pack("<IIIIiiHHIIIIII", 954, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(900)


def ppm(width: int, height: int) -> bytes:
    """The same as text."""
    return f"P6\n{width} {height}\n255\n".encode() + bytes(900)


def jpeg(path: Path, width: int, height: int) -> bytes:
    """A good picture's data under a header of this size. `path`: where to make it."""
    data = bytearray(numbered(path.with_suffix(".mjpeg"), frames=1, codec="mjpeg").read_bytes())
    at = data.index(b"\xff\xc0") + 5
    struct.pack_into(">HH", data, at, height, width)
    return bytes(data)


def exponential_golomb(value: int) -> str:
    """ue(v) of H.264 (9.1), as bits."""
    digits = f"{value + 1:b}"
    return "0" * (len(digits) - 1) + digits


def h264(width: int, height: int) -> bytes:
    """A sequence parameter set of this size (H.264, 7.3.2.1.1), a picture parameter set and the beginning of a picture."""
    ue = exponential_golomb
    bits = ue(0) + ue(0) + ue(2) + ue(1) + "0" + ue(width // 16 - 1) + ue(height // 16 - 1) + "11" + "0" + "0" + "1"
    sps = bytes([0x67, 66, 0xC0, 51]) + _packed(bits)
    pps = bytes([0x68]) + _packed(ue(0) + ue(0) + "00" + ue(0) + ue(0) + ue(0) + "000" + ue(0) + ue(0) + ue(0) + "000" + "1")
    picture = bytes([0x65]) + _packed(ue(0) + ue(7) + ue(0) + "0000" + ue(0) + "00" + ue(0)) + b"\x55" * 400
    return b"".join(b"\0\0\0\1" + unit for unit in (sps, pps, picture)) * 4


def _packed(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def with_size(clip: Path, width: int, height: int) -> bytes:
    """An mp4 or mkv of 64x64 pixels with this size in its header."""
    data = bytearray(clip.read_bytes())
    if clip.suffix == ".mkv":
        # PixelWidth and PixelHeight (RFC 9559) take the place of the element behind them, which says something of fields.
        at = data.index(b"\xb0\x81\x40\xba\x81\x40\x54\xb2")
        data[at : at + 10] = b"\xb0\x83" + width.to_bytes(3, "big") + b"\xba\x83" + height.to_bytes(3, "big")
        return bytes(data)
    at = data.index(b"avc1", data.index(b"stsd")) + 28  # ISO 14496-12, 12.1.3
    struct.pack_into(">HH", data, at, min(width, 65535), min(height, 65535))
    at = data.index(b"tkhd") + 80
    struct.pack_into(">II", data, at, min(width, 65535) << 16, min(height, 65535) << 16)
    return bytes(data)
