"""Letterbox: fits any picture into the size of an open output."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from pipelines.frame import Matrix, Picture, Plane
from pipelines.media.colour import scaler_code
from pipelines.media.planes import color_range, plane_array, upright_frame

_QUALITY = Interpolation.BICUBIC | Interpolation.ACCURATE_RND


class Letterbox:
    """Scales pictures of another size, shape or colour into the form of the first one: centred on black, with their aspect.

    Thread: the owner's. The scaler is kept between pictures.
    """

    def __init__(self, first: Picture) -> None:
        self._size = first.upright_size
        self._aspect = first.upright_aspect
        self._matrix: Matrix = first.matrix
        self._full_range = first.full_range
        self._scaler = VideoReformatter()

    def fits(self, picture: Picture) -> bool:
        """Whether the picture has the first one's form already."""
        shape = (picture.upright_size, picture.upright_aspect)
        return shape == (self._size, self._aspect) and self._same_colour(picture)

    def fit(self, picture: Picture) -> Picture:
        """A new picture with the first one's size, sample aspect, matrix and range."""
        width, height = self._inner(picture)
        scaled = self._scaled(picture, width, height)
        planes = []
        for index, plane in enumerate(scaled):
            shift = 1 if index else 0
            whole = (self._size[1] >> shift, self._size[0] >> shift)
            black = 128 if index else (0 if self._full_range else 16)
            canvas = np.full(whole, black, np.uint8)
            # The offset on the luma plane is even, so that chroma keeps its position.
            top, left = ((self._size[1] - height) // 4 * 2) >> shift, ((self._size[0] - width) // 4 * 2) >> shift
            canvas[top : top + plane.shape[0], left : left + plane.shape[1]] = plane
            planes.append(canvas)
        y, u, v = planes
        return Picture(y, u, v, self._matrix, self._full_range, sample_aspect=self._aspect)

    def _same_colour(self, picture: Picture) -> bool:
        return (picture.matrix, picture.full_range) == (self._matrix, self._full_range)

    def _inner(self, picture: Picture) -> tuple[int, int]:
        """(width, height) of the scaled picture in the output's samples: even, at least 2."""
        width, height = picture.upright_size
        shown = width * picture.upright_aspect / self._aspect
        scale: Fraction = min(self._size[0] / shown, Fraction(self._size[1], height))
        return max(2, round(shown * scale / 2) * 2), max(2, round(height * scale / 2) * 2)

    def _scaled(self, picture: Picture, width: int, height: int) -> list[Plane]:
        frame = self._scaler.reformat(
            upright_frame(picture),
            width,
            height,
            "yuv420p",
            src_colorspace=scaler_code(picture.matrix),
            dst_colorspace=scaler_code(self._matrix),
            src_color_range=color_range(picture.full_range),
            dst_color_range=color_range(self._full_range),
            interpolation=_QUALITY,
            threads=1,
        )
        return [plane_array(plane) for plane in frame.planes]
