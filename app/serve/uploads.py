"""The pictures of a request: one or many, encoded or as samples. This module decodes none of them.

There are two kinds of samples: `application/x-raw-rgb`, (height, width, 3) bytes, and `application/x-yuv420p`, the three planes
of a `Picture` one after the other. The client class sends planes: the predictor gets them unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from app.http.problems import Problem, too_large, wrong_shape
from app.serve.multipart import parts
from pipelines.frame import Matrix, Picture
from pipelines.media import decoder_limits
from pipelines.sources.files.encoded import EncodedPictures, announced, most_pixels

ENCODED = ("image/jpeg", "image/png", "image/webp", "image/gif")
RGB, PLANES, MANY = "application/x-raw-rgb", "application/x-yuv420p", "multipart/form-data"
MATRICES: tuple[str, ...] = get_args(Matrix)
DECODED = 2
"""Bytes per pixel of a decoded picture: 1.5, rounded up."""
DECODING = {"jpeg": 5, "png": 16, "webp": 16, "gif": 16, "animated webp": 16}
"""Most bytes per pixel during decoding. JPEG: its chroma may be scaled. Others: RGBA of 16 bits, a copy of 8 bits, and a copy
on white."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One picture of a request. `decode` makes the picture, with the decoder of the calling thread. `memory` reads the header
    of the picture: it gives the bytes of the picture, and the further bytes that decoding needs."""

    decode: Callable[[EncodedPictures], Picture]
    memory: Callable[[], tuple[int, int]]
    file: str | None = None
    """Its file name in the form; None without one."""


def uploads(content_type: str, headers: Mapping[str, str], body: bytes, most: int) -> list[Upload]:
    """The pictures of a request.

    :raises Problem: if there is none (400), if there are more than `most` (413), or if their shape is wrong (422).
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == MANY:
        return [_encoded(data, file) for file, data in parts(content_type, body, most)]
    if not body:
        raise Problem(400, "empty", "the body is empty; it must hold a picture")
    if kind in ENCODED:
        return [_encoded(body)]
    return [_rgb(headers, body) if kind == RGB else _planes(headers, body)]


def check_type(content_type: str) -> None:
    """:raises Problem: 415, if the service does not accept this type of body."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (*ENCODED, RGB, PLANES, MANY):
        allowed = ", ".join((*ENCODED, MANY, RGB))
        raise Problem(415, "unsupported", f"Content-Type {kind[:100]!r} is not accepted; allowed: {allowed}")


def _encoded(data: bytes, file: str | None = None) -> Upload:
    def memory() -> tuple[int, int]:
        kind, width, height = announced(data)
        if width * height > most_pixels(kind):
            raise too_large(f"the picture has {width}x{height} pixels; at most {most_pixels(kind)} are read")
        return DECODED * width * height, (DECODING[kind] - DECODED) * width * height

    return Upload(lambda pictures: pictures.decode(data), memory, file)


def _rgb(headers: Mapping[str, str], body: bytes) -> Upload:
    width, height = _size(headers)
    _check_length(body, 3 * width * height, f"{width}x{height} RGB")
    pixels = np.frombuffer(body, np.uint8).reshape(height, width, 3)
    # FFmpeg copies the samples: 3 bytes per pixel.
    return Upload(lambda pictures: pictures.from_rgb(pixels), lambda: (DECODED * width * height, 3 * width * height))


def _planes(headers: Mapping[str, str], body: bytes) -> Upload:
    width, height = _size(headers)
    w, h = (width + 1) // 2, (height + 1) // 2
    _check_length(body, width * height + 2 * w * h, f"{width}x{height} yuv420p")
    flat = np.frombuffer(body, np.uint8)
    y, u, v = np.split(flat, (width * height, width * height + w * h))
    try:
        picture = Picture(
            y.reshape(height, width),
            u.reshape(h, w),
            v.reshape(h, w),
            matrix=_one_of(headers, "x-matrix", MATRICES, "bt601"),
            full_range=_one_of(headers, "x-full-range", ("0", "1"), "0") == "1",
            rotation=int(_one_of(headers, "x-rotation", ("0", "90", "180", "270"), "0")),  # type: ignore[arg-type]
            mirrored=_one_of(headers, "x-mirrored", ("0", "1"), "0") == "1",
            sample_aspect=_aspect(headers),
        )
    except (ValueError, ZeroDivisionError):
        raise wrong_shape("X-Sample-Aspect must be a fraction above 0, like 1/1") from None
    return Upload(lambda _: picture, lambda: (0, 0))  # its planes lie in the body, which counts already


def planes_request(picture: Picture) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request that sends the planes of a picture."""
    headers = {
        "Content-Type": PLANES,
        "X-Width": str(picture.width),
        "X-Height": str(picture.height),
        "X-Matrix": picture.matrix,
        "X-Full-Range": str(int(picture.full_range)),
        "X-Rotation": str(picture.rotation),
        "X-Mirrored": str(int(picture.mirrored)),
        "X-Sample-Aspect": str(picture.sample_aspect),
    }
    return headers, b"".join(plane.tobytes() for plane in (picture.y, picture.u, picture.v))


def _size(headers: Mapping[str, str]) -> tuple[int, int]:
    """Width and height.

    :raises Problem: if they are missing or wrong (422), or too large (413).
    """
    try:
        width, height = (int(headers.get(name, "")) for name in ("x-width", "x-height"))
    except ValueError:
        raise wrong_shape("samples need X-Width and X-Height, whole numbers") from None
    if min(width, height) < 1:
        raise wrong_shape(f"X-Width and X-Height must be 1 or more, got {width} and {height}")
    if width * height > decoder_limits.PICTURE_PIXELS:
        raise too_large(f"the picture has {width}x{height} pixels; at most {decoder_limits.PICTURE_PIXELS} are read")
    return width, height


def _check_length(body: bytes, wanted: int, name: str) -> None:
    if len(body) != wanted:
        raise wrong_shape(f"{name} has {wanted} bytes, the body has {len(body)}")


def _one_of(headers: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> Any:
    value = headers.get(name, default)
    if value not in allowed:
        raise wrong_shape(f"{name.title()} {value[:50]!r} is not known; allowed: {', '.join(allowed)}")
    return value


def _aspect(headers: Mapping[str, str]) -> Fraction:
    given = headers.get("x-sample-aspect", "1")
    if re.fullmatch(r"\d{1,6}([/:]\d{1,6})?", given, re.ASCII) is None:
        raise ValueError  # Fraction would compute 1e999999999, digit by digit
    aspect = Fraction(given.replace(":", "/"))
    if not Fraction(1, 1000) <= aspect <= 1000:
        raise ValueError
    return aspect
