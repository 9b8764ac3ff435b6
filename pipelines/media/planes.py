"""Planes of pictures between numpy and FFmpeg, with colour tags; copied only if FFmpeg cannot use the memory directly."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import ColorRange

from pipelines.frame import Picture, Plane
from pipelines.media.colour import COEFFICIENTS


def color_range(full: bool) -> int:
    """FFmpeg's number of a colour range: full (0-255), or limited (luma 16-235)."""
    return int(ColorRange.JPEG if full else ColorRange.MPEG)


def plane_array(plane: VideoPlane) -> Plane:
    """(height, width) uint8 view of one 8-bit plane. It keeps the frame's memory alive."""
    flat = np.frombuffer(cast(bytes, plane), np.uint8)
    return flat.reshape(-1, plane.line_size)[: plane.height, : plane.width]


def packed_array(frame: av.VideoFrame, samples: int) -> npt.NDArray[np.uint8]:
    """(height, width, samples) uint8 view of a frame with one plane, such as RGB. It keeps the frame's memory alive."""
    (plane,) = frame.planes
    flat = np.frombuffer(cast(bytes, plane), np.uint8).reshape(-1, plane.line_size)
    return flat[: frame.height, : frame.width * samples].reshape(frame.height, frame.width, samples)


def yuv_frame(picture: Picture, x0: int = 0, x1: int | None = None, y0: int = 0, y1: int | None = None) -> av.VideoFrame:
    """Samples x0:x1, y0:y1 of the stored planes as a yuv420p frame with its colour tags. If x0 or y0 is odd, the
    first chroma sample also belongs to the luma sample before it.

    The frame shares the picture's memory and keeps it alive (0.01 ms). If the width or height is odd, which PyAV's DLPack
    import refuses, the samples are copied.
    """
    y = picture.y[y0:y1, x0:x1]
    h, w = y.shape
    chroma = np.s_[y0 // 2 : y0 // 2 + (h + 1) // 2, x0 // 2 : x0 // 2 + (w + 1) // 2]
    planes = (y, picture.u[chroma], picture.v[chroma])
    if h % 2 or w % 2:
        frame = av.VideoFrame(w, h, "yuv420p")
        for target, plane in zip(frame.planes, planes, strict=True):
            np.copyto(plane_array(target), plane)
    else:
        exported = tuple(_exportable(plane) for plane in planes)
        frame = av.VideoFrame.from_dlpack(exported, format="yuv420p", width=w, height=h)
    # PyAV sets no colour tags on a frame that it makes from planes.
    frame.colorspace = COEFFICIENTS[picture.matrix].code
    frame.color_range = color_range(picture.full_range)
    return frame


def upright_frame(picture: Picture) -> av.VideoFrame:
    """The whole picture, rotated and mirrored as it is shown, as a yuv420p frame with its colour tags; see `yuv_frame`."""
    y, u, v = picture.upright()
    return yuv_frame(replace(picture, y=y, u=u, v=v, rotation=0, mirrored=False))


def _exportable(plane: Plane) -> Plane:
    """The plane, or a copy if DLPack refuses it: if it is read-only, or its rows are mirrored."""
    return plane if plane.flags.writeable and plane.strides[1] == 1 else plane.copy()
