"""Decoder frames -> pictures. yuv420p planes are taken as they are; every other pixel format is converted once, here."""

from __future__ import annotations

import gc
from fractions import Fraction
from typing import Literal, cast

import av
import numpy as np
from av.sidedata.sidedata import Type as SideData
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

from pipelines.frame import Matrix, Picture
from pipelines.media.colour import MATRICES, scaler_code
from pipelines.media.planes import color_range, plane_array
from pipelines.media.sidedata import display_matrix
from pipelines.media.transparency import Page, transparent

# PyAV's list of kinds ends before FFmpeg's: a photo's EXIF block, say, would make every other kind unreadable. What it
# does not know passes for a kind that nobody here asks for.
SideData._missing_ = classmethod(lambda cls, value: cls.PANSCAN)  # type: ignore[assignment,method-assign]

Turn = tuple[Literal[0, 90, 180, 270], bool]
"""Degrees clockwise, and whether left and right swap after that."""
PLAIN = ("yuv420p", "yuvj420p")
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP

UPRIGHT: Turn = (0, False)
HELD_BYTES = 256 << 20
"""Samples of frames that may wait for Python's garbage collector. PyAV ties a frame whose side data was read to itself, and
the collector, which counts objects, comes after two hundred of them: of 1080p that were 600 MB."""


class Pixels:
    """Keeps the converter of one source, and how its pictures are turned. Thread: the source's.

    steady: the frames are those of one stream. What lies beside a frame is read anew only when its size or rotation changes,
    which costs nothing to see; a stream does not begin to stand on its head, mirrored, without either.
    """

    _held = 0
    """Bytes since the collector was last called, of all sources."""

    def __init__(self, *, steady: bool = False) -> None:
        self._converter = VideoReformatter()
        self._steady = steady
        self._size: tuple[int, int] | None = None
        self._rotation = 0.0
        self._to_rgb = VideoReformatter()
        self._page = Page()
        self._turned = UPRIGHT

    def picture(self, frame: av.VideoFrame, aspect: Fraction | None) -> Picture:
        """The frame as a picture of this sample aspect; its planes keep the frame's memory alive."""
        matrix = MATRICES.get(int(frame.colorspace), "bt601")
        full_range = frame.color_range == ColorRange.JPEG or frame.format.name.startswith("yuvj")
        rotation, mirrored = self._turn(frame)
        if frame.format.name not in PLAIN:
            frame, full_range = self._converted(frame, matrix, full_range)
        y, u, v = (plane_array(p) for p in frame.planes)
        return Picture(y, u, v, matrix, full_range, rotation, mirrored, aspect or Fraction(1))

    def _turn(self, frame: av.VideoFrame) -> Turn:
        """A container's turn comes with every frame. A stream's own comes with some (H.264, D.2.27, H.265, D.2.17), and
        holds until it says otherwise, at the latest until its next key picture."""
        rotation, size = frame.rotation, (frame.width, frame.height)
        shows = rotation != self._rotation if rotation else frame.key_frame and self._turned != UPRIGHT
        if shows or size != self._size or not self._steady:
            self._size, self._rotation = size, rotation
            self._make_room(frame)
            found = _display_matrix(frame)
            if found is not None or frame.key_frame:
                self._turned = found or UPRIGHT
        return self._turned

    @staticmethod
    def _make_room(frame: av.VideoFrame) -> None:
        """Before the frame's side data is read."""
        Pixels._held += sum(plane.buffer_size for plane in frame.planes)
        if Pixels._held > HELD_BYTES:
            Pixels._held = 0
            gc.collect()

    def _converted(self, frame: av.VideoFrame, matrix: Matrix, full_range: bool) -> tuple[av.VideoFrame, bool]:
        # RGB has no range of its own: it becomes full range, which keeps all of its levels.
        full = full_range or frame.format.is_rgb or frame.format.name.startswith(("gray", "pal8", "mono", "ya"))
        if _coarse(frame):
            frame = self._to_rgb.reformat(frame, format="rgb24", threads=1)
        opaque = self._page.laid_on(frame, matrix, full, EXACT) if transparent(frame.format) else frame
        converted = self._converter.reformat(
            opaque,
            format="yuv420p",
            interpolation=EXACT,
            threads=1,
            src_colorspace=scaler_code(matrix),
            dst_colorspace=scaler_code(matrix),
            src_color_range=color_range(full or opaque.format.is_rgb),
            dst_color_range=color_range(full),
        )
        return converted, full


def _coarse(frame: av.VideoFrame) -> bool:
    """RGB of less than 8 bits a colour, of which the scaler's way to YUV would make white 248."""
    return frame.format.is_rgb and not frame.format.has_palette and min(c.bits for c in frame.format.components) < 8


def _display_matrix(frame: av.VideoFrame) -> Turn | None:
    """The turn that the frame's display matrix says (ISO 14496-12, 8.2.2), if it has one."""
    data = display_matrix(frame)
    if data is None:
        return None
    a, b, _, c, d = (int(x) for x in np.frombuffer(data, "<i4")[:5])
    mirrored = a * d - b * c < 0
    if mirrored:
        a, c = -a, -c
    turn = round(np.degrees(np.arctan2(b, a)) / 90) % 4 * 90
    return cast(Literal[0, 90, 180, 270], turn), mirrored
