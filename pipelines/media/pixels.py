"""Decoder frames -> pictures. Planes in yuv420p are used without a copy; every other pixel format is converted here, once."""

from __future__ import annotations

import gc
from fractions import Fraction
from typing import Literal, cast

import av
import numpy as np
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

from pipelines.frame import Matrix, Picture
from pipelines.media import patches
from pipelines.media.colour import MATRICES, scaler_code
from pipelines.media.planes import color_range, plane_array
from pipelines.media.sidedata import display_matrix
from pipelines.media.transparency import WhiteBackground, transparent

Turn = tuple[Literal[0, 90, 180, 270], bool]
"""Degrees clockwise, and whether left and right are swapped after the rotation."""
PLAIN = ("yuv420p", "yuvj420p")
EXACT = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP

UPRIGHT: Turn = (0, False)
HELD_BYTES = 256 << 20
"""Bytes of frames that may wait for Python's garbage collector. PyAV 18.1 puts a frame into a reference
cycle when its side data is read, and the collector, which counts objects, runs only after 200 of them: 600 MB at 1080p."""


class Pixels:
    """Makes pictures from the decoded frames of one source; keeps its converters and its rotation. Thread: the source's.

    steady: all frames belong to one stream. Then a frame's side data is read only if its size or rotation changes, which is
    free to compare: a stream does not turn or mirror its pictures without a change of either.
    """

    _held = 0
    """Bytes of the frames, of all sources, with side data that was read since the last collection."""

    def __init__(self, *, steady: bool = False) -> None:
        patches.install()
        self._converter = VideoReformatter()
        self._steady = steady
        self._size: tuple[int, int] | None = None
        self._rotation = 0.0
        self._to_rgb = VideoReformatter()
        self._background = WhiteBackground()
        self._turned = UPRIGHT

    def picture(self, frame: av.VideoFrame, aspect: Fraction | None) -> Picture:
        """The frame as a picture. Its planes are views that keep the frame's memory alive. aspect: of a sample; None: 1."""
        matrix = MATRICES.get(int(frame.colorspace), "bt601")
        full_range = frame.color_range == ColorRange.JPEG or frame.format.name.startswith("yuvj")
        rotation, mirrored = self._turn(frame)
        if frame.format.name not in PLAIN:
            frame, full_range = self._converted(frame, matrix, full_range)
        y, u, v = (plane_array(p) for p in frame.planes)
        return Picture(y, u, v, matrix, full_range, rotation, mirrored, aspect or Fraction(1))

    def _turn(self, frame: av.VideoFrame) -> Turn:
        """The rotation and mirroring of the frame.

        A container's rotation is in every frame. A stream's own is only in some (H.264, D.2.27, H.265, D.2.17); it is valid
        until the stream changes it, at most until the next key picture.
        """
        rotation, size = frame.rotation, (frame.width, frame.height)
        shows = rotation != self._rotation if rotation else frame.key_frame and self._turned != UPRIGHT
        if shows or size != self._size or not self._steady:
            self._size, self._rotation = size, rotation
            self._limit_held(frame)
            found = _display_matrix(frame)
            if found is not None or frame.key_frame:
                self._turned = found or UPRIGHT
        return self._turned

    @staticmethod
    def _limit_held(frame: av.VideoFrame) -> None:
        """Collect garbage if more than HELD_BYTES of frames wait for it. To be called before the frame's side data is read."""
        Pixels._held += sum(plane.buffer_size for plane in frame.planes)
        if Pixels._held > HELD_BYTES:
            Pixels._held = 0
            gc.collect()

    def _converted(self, frame: av.VideoFrame, matrix: Matrix, full_range: bool) -> tuple[av.VideoFrame, bool]:
        """The frame as yuv420p, and whether it has full range; transparent parts become white."""
        # RGB has no range of its own: it becomes full range, which keeps all of its levels.
        full = full_range or frame.format.is_rgb or frame.format.name.startswith(("gray", "pal8", "mono", "ya"))
        if _coarse(frame):
            frame = self._to_rgb.reformat(frame, format="rgb24", threads=1)
        opaque = self._background.composited(frame, matrix, full, EXACT) if transparent(frame.format) else frame
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
    """Whether it is RGB with less than 8 bits a colour: converted directly to YUV by the scaler, its white would become 248."""
    return frame.format.is_rgb and not frame.format.has_palette and min(c.bits for c in frame.format.components) < 8


def _display_matrix(frame: av.VideoFrame) -> Turn | None:
    """Rotation and mirroring by the frame's display matrix (ISO 14496-12, 8.2.2); None if it has no matrix."""
    data = display_matrix(frame)
    if data is None:
        return None
    a, b, _, c, d = (int(x) for x in np.frombuffer(data, "<i4")[:5])
    mirrored = a * d - b * c < 0
    if mirrored:
        a, c = -a, -c
    turn = round(np.degrees(np.arctan2(b, a)) / 90) % 4 * 90
    return cast(Literal[0, 90, 180, 270], turn), mirrored
