"""Encoded pictures in memory: decoded as from a file of a run; damaged ones are refused."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import SourceError
from pipelines.frame import Picture
from pipelines.media import decoder_limits
from pipelines.media.pixels import Pixels
from pipelines.sources.files.encoded import EncodedPictures, announced
from pipelines.sources.files.images import read_picture
from tests.serve.serving import encoded, halves, noise

SAMPLES = Path(__file__).parents[2] / "samples"
TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""The Pillow operations that make a picture of each EXIF orientation upright."""


def animation(format: str, **how: object) -> bytes:
    first = Image.fromarray(halves())
    return encoded(first, format, save_all=True, append_images=[Image.new("RGB", first.size, "green")], duration=100, **how)


KINDS: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(Image.fromarray(halves()), quality=95),
    "jpeg 4:4:4": lambda: encoded(Image.fromarray(halves()), quality=95, subsampling=0),
    "jpeg progressive": lambda: encoded(Image.fromarray(halves()), quality=95, progressive=True),
    "jpeg CMYK": lambda: encoded(Image.fromarray(halves()).convert("CMYK"), quality=95),
    "png": lambda: encoded(Image.fromarray(halves()), "PNG"),
    "png RGBA": lambda: encoded(Image.fromarray(halves()).convert("RGBA"), "PNG"),
    "png palette": lambda: encoded(Image.fromarray(halves()).convert("P"), "PNG"),
    "png animated": lambda: animation("PNG"),
    "webp": lambda: encoded(Image.fromarray(halves()), "WEBP", quality=95),
    "webp lossless": lambda: encoded(Image.fromarray(halves()), "WEBP", lossless=True),
    "webp animated": lambda: animation("WEBP", lossless=True),
    "gif": lambda: encoded(Image.fromarray(halves()), "GIF"),
    "gif animated": lambda: animation("GIF"),
}


def decode(data: bytes) -> Picture:
    return EncodedPictures().decode(data)


def colours(picture: Picture) -> tuple[list[int], list[int]]:
    """Y, U, V of the left and right half of the upright picture, full range."""
    y, u, v = picture.upright()
    h, w = y.shape
    left = [int(y[h // 2, w // 4]), int(u[h // 4, w // 8]), int(v[h // 4, w // 8])]
    right = [int(y[h // 2, 3 * w // 4]), int(u[h // 4, 3 * w // 8]), int(v[h // 4, 3 * w // 8])]
    if picture.full_range:
        return left, right
    return tuple([round((c[0] - 16) * 255 / 219), *(round(128 + (k - 128) * 255 / 224) for k in c[1:])] for c in (left, right))  # type: ignore[return-value]


RED, BLUE = [76, 85, 255], [29, 255, 107]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read(kind: str) -> None:
    data = KINDS[kind]()
    assert announced(data)[1:] == (64, 48)
    picture = decode(data)
    assert (picture.width, picture.height) == (64, 48)
    for got, wanted in zip(colours(picture), (RED, BLUE), strict=True):
        assert np.abs(np.subtract(got, wanted)).max() <= 6, (got, wanted)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", TURNED)
def test_what_is_tagged_as_turned_is_turned(format: str, orientation: int) -> None:
    way, exif = TURNED[orientation], Image.Exif()
    exif[0x112] = orientation
    upright = Image.fromarray(halves())
    data = encoded(upright.transpose(way) if way is not None else upright, format, exif=exif, quality=95)
    picture = decode(data)
    assert picture.upright_size == (64, 48)
    for got, wanted in zip(colours(picture), (RED, BLUE), strict=True):
        assert np.abs(np.subtract(got, wanted)).max() <= 9, (got, wanted)


@pytest.mark.parametrize("name", sorted(p.name for p in (SAMPLES / "photos").glob("*.jpg")))
def test_a_photo_is_what_it_is_as_a_file(name: str) -> None:
    path = SAMPLES / "photos" / name
    here = decode(path.read_bytes())
    there = Pixels().picture(*read_picture(path, threading.Event()))
    for one, other in ((here.y, there.y), (here.u, there.u), (here.v, there.v)):
        np.testing.assert_array_equal(one, other)
    for field in ("matrix", "full_range", "rotation", "mirrored", "sample_aspect"):
        assert getattr(here, field) == getattr(there, field), field


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cut_off_is_refused(kind: str) -> None:
    """At every length, except within an animation's later pictures or an empty trailer."""
    data = KINDS[kind]()
    taken = []
    for length in range(len(data)):
        try:
            decode(data[:length])
        except SourceError:
            continue
        taken.append(len(data) - length)
    whole = {"gif": {1, 2}, "png": {12}, "png RGBA": {12}, "png palette": {12}}
    if "animated" not in kind:
        assert set(taken) <= whole.get(kind, set())
    elif kind == "webp animated":
        assert taken == []  # its length shows that a part is missing
    else:
        assert len(taken) < len(data) // 2


def test_a_photo_that_is_cut_off_is_refused() -> None:
    data = (SAMPLES / "photos/home.jpg").read_bytes()
    for length in (2000, len(data) // 2, len(data) - 10, len(data) - 2):
        with pytest.raises(SourceError, match=r"cut off|damaged"):
            decode(data[:length])
    assert decode(data + b"\0" * 100).width == 512


def test_broken_bytes_raise_nothing_else() -> None:
    chance = random.Random(0)
    kinds = [make() for make in KINDS.values()]
    decoder, outcomes = EncodedPictures(), {"picture": 0, "refused": 0}
    for _ in range(2000):
        data = bytearray(chance.choice(kinds))
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            decoder.decode(bytes(data))
            outcomes["picture"] += 1
        except SourceError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 200


@pytest.mark.parametrize("exif", [b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"])
def test_a_malformed_exif_block_harms_nothing(exif: bytes) -> None:
    picture = decode(encoded(Image.fromarray(halves()), exif=exif, quality=95))
    assert picture.upright_size == (64, 48)


def test_transparent_parts_are_white_and_16_bits_are_scaled() -> None:
    pixels = np.dstack([halves(), np.full((48, 64), 255, np.uint8)])
    pixels[:, 32:, 3] = 0
    for format, how in (("PNG", {}), ("WEBP", {"lossless": True}), ("GIF", {})):
        _, right = colours(decode(encoded(Image.fromarray(pixels, "RGBA"), format, **how)))
        assert right == [255, 128, 128], format
    wide = Image.fromarray(np.full((48, 64), 0x80FF, np.uint16))
    assert abs(int(decode(encoded(wide, "PNG")).y[10, 10]) - 0x80) <= 1


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp animated"])
def test_a_header_that_promises_too_much_is_believed_and_refused(kind: str) -> None:
    data = bytearray(KINDS[kind]())
    if kind == "png":
        data[16:24] = struct.pack(">II", 100_000, 100_000)
    elif kind == "jpeg":
        at = data.index(b"\xff\xc0")
        data[at + 5 : at + 9] = struct.pack(">HH", 65_000, 65_000)
    elif kind == "gif":
        data[6:10] = struct.pack("<HH", 60_000, 60_000)
    else:
        data[24:30] = b"\xff" * 6
    with pytest.raises(SourceError, match="pixels; at most"):
        decode(bytes(data))


def test_a_gif_whose_picture_is_larger_than_its_screen() -> None:
    data = bytearray(KINDS["gif"]())
    at = data.index(b"\x2c\0\0\0\0")
    data[at + 5 : at + 9] = struct.pack("<HH", 60_000, 60_000)
    with pytest.raises(SourceError):
        decode(bytes(data))


def test_samples() -> None:
    picture = EncodedPictures().from_rgb(halves())
    assert np.abs(np.subtract(colours(picture), (RED, BLUE))).max() <= 1
    assert picture.full_range


def test_the_largest_jpeg_is_within_the_bound() -> None:
    assert announced(encoded(noise((16, 16))))[1:] == (16, 16)
    assert decoder_limits.PICTURE_PIXELS > 108e6
