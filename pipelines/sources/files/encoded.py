"""Decodes an encoded picture in memory to a Picture: JPEG, PNG, WebP or GIF; the first picture of an animation.

The data, not a name, decides the kind. The header is read first, so that a picture that is too large is refused before
memory is allocated. JPEG, PNG and WebP go directly to FFmpeg's decoders; a demuxer would read them twice. Animated WebP,
which FFmpeg's decoder cannot read, and GIF are decoded by Pillow.

An incomplete picture is refused, unlike an incomplete picture file of a run: FFmpeg fills in the missing part, and the model
would classify the result.
"""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from typing import Literal

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext
from PIL import Image, UnidentifiedImageError

from pipelines.errors import SourceError
from pipelines.frame import Picture
from pipelines.media import decoder_limits
from pipelines.media.pixels import Pixels
from pipelines.sources.files import jpeg

PictureKind = Literal["jpeg", "png", "webp", "gif", "animated webp"]
DECODERS = {"jpeg": "mjpeg", "png": "png", "webp": "webp"}
STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}
"""Decoder options that refuse damaged data; without them FFmpeg returns a picture even for half a JPEG."""
DAMAGED = "the picture cannot be decoded: it is damaged or cut off"
BROKEN = (
    UnidentifiedImageError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    struct.error,
)
"""The exceptions that Pillow raises for a damaged animation."""


class EncodedPictures:
    """Decodes encoded pictures one after another and keeps its scalers between them. Use it in one thread at a time."""

    def __init__(self) -> None:
        self._pixels = Pixels()

    def decode(self, data: bytes) -> Picture:
        """Decode an encoded picture. The result equals that of the same data as a picture file of a run.

        :raises SourceError: if the data are not a picture, are cut off or damaged, or have more pixels than `most_pixels`.
        """
        kind, width, height = announced(data)
        if width * height > most_pixels(kind):
            raise SourceError(f"the picture has {width}x{height} pixels; at most {most_pixels(kind)} are read")
        frame, aspect = _animation(data) if kind in ("gif", "animated webp") else _still(data, DECODERS[kind])
        return self._pixels.picture(frame, aspect)

    def from_rgb(self, pixels: npt.NDArray[np.uint8]) -> Picture:
        """Convert (height, width, 3) uint8 RGB samples of full range to a picture."""
        return self._pixels.picture(av.VideoFrame.from_ndarray(pixels, "rgb24"), None)


def most_pixels(kind: PictureKind) -> int:
    """The largest number of pixels that is accepted for a kind of picture. An animation has the limit of videos."""
    return decoder_limits.VIDEO_PIXELS if kind in ("gif", "animated webp") else decoder_limits.PICTURE_PIXELS


def announced(data: bytes) -> tuple[PictureKind, int, int]:
    """Kind, width and height by the header. Nothing is decoded.

    :raises SourceError: if the data begin with no header of these kinds, or are cut off.
    """
    try:
        if data[:2] == b"\xff\xd8":
            return "jpeg", *_jpeg_size(data)
        if data[:8] == b"\x89PNG\r\n\x1a\n":
            width, height = struct.unpack_from(">II", data, 16)
            return "png", width, height
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            width, height = struct.unpack_from("<HH", data, 6)
            return "gif", width, height
    except (struct.error, IndexError):
        raise SourceError("the picture is cut off before its size") from None
    raise SourceError("no picture of a known kind: JPEG, PNG, WebP or GIF")


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height of a JPEG by its first frame header.

    :raises SourceError: if it has no size, or its scan has no end (FFmpeg would fill in the missing part).
    """
    size, scan = jpeg.header(data)
    if size is None:
        raise SourceError("the JPEG names no size")
    if not jpeg.ends(data, scan):
        raise SourceError("the picture is cut off: its end is missing")
    return size


def _webp(data: bytes) -> tuple[PictureKind, int, int]:
    """Kind, width and height of a WebP. The size is in the first chunk, in a format of its own for each kind of chunk:
    https://developers.google.com/speed/webp/docs/riff_container
    """
    chunk = data[12:16]
    if chunk == b"VP8X":
        sides = (1 + int.from_bytes(data[k : k + 3], "little") for k in (24, 27))
        width, height = sides
        return "animated webp" if data[20] & 2 else "webp", width, height
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return "webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return "webp", width & 0x3FFF, height & 0x3FFF
    raise SourceError("no picture in the WebP")


def _still(data: bytes, decoder: str) -> tuple[av.VideoFrame, Fraction | None]:
    """The picture and its sample aspect, decoded by one of FFmpeg's decoders."""
    context = CodecContext.create(decoder, "r")
    assert isinstance(context, VideoCodecContext)
    context.thread_count = 1
    context.options = decoder_limits.pixels(decoder_limits.PICTURE_PIXELS) | STRICT
    try:
        frames = context.decode(av.Packet(data))
    except (av.error.FFmpegError, MemoryError):
        frames = []
    if not frames or frames[0].is_corrupt:
        raise SourceError(DAMAGED)
    return frames[0], context.sample_aspect_ratio


def _animation(data: bytes) -> tuple[av.VideoFrame, None]:
    """The first picture of an animation, decoded by Pillow to RGBA."""
    try:
        with Image.open(io.BytesIO(data), formats=("GIF", "WEBP")) as picture:
            # Checked again: a GIF's picture may be larger than the screen size in its header.
            if picture.width * picture.height > decoder_limits.VIDEO_PIXELS:
                raise ValueError
            first = np.asarray(picture.convert("RGBA"))
    except BROKEN:
        raise SourceError(DAMAGED) from None
    return av.VideoFrame.from_ndarray(first, "rgba"), None
