"""Films that must be turned: four quadrants of different colours show each of the eight turns."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.rgb import HEIGHT, WIDTH


def quadrants(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Red, blue, green and yellow, row by row."""
    image = Image.new("RGB", (width, height))
    for k, colour in enumerate(((220, 40, 40), (40, 60, 220), (60, 200, 60), (230, 220, 40))):
        x, y = k % 2 * width // 2, k // 2 * height // 2
        image.paste(colour, (x, y, x + width // 2, y + height // 2))
    return image


def write_matrix(clip: Path, a: int, b: int, c: int, d: int) -> None:
    """Write a display matrix (16.16 fixed point) into the track header of an mp4."""
    data = bytearray(clip.read_bytes())
    at = data.index(b"tkhd")
    place = at + 4 + 40
    for k, value in enumerate((a, b, 0, c, d)):
        data[place + 4 * k : place + 4 * k + 4] = (value << 16 & 0xFFFFFFFF).to_bytes(4, "big")
    clip.write_bytes(bytes(data))


TURNS = {
    "as it is": (1, 0, 0, 1),
    "90": (0, 1, -1, 0),
    "180": (-1, 0, 0, -1),
    "270": (0, -1, 1, 0),
    "mirrored": (-1, 0, 0, 1),
    "upside down": (1, 0, 0, -1),
    "transposed": (0, 1, 1, 0),
    "anti-transposed": (0, -1, -1, 0),
}
"""a, b, c, d of the display matrix."""
