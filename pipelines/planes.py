"""Planes between numpy and FFmpeg, without copying."""

from __future__ import annotations

from typing import cast

import av
import numpy as np
from av.video.plane import VideoPlane
from av.video.reformatter import ColorRange, Colorspace

from pipelines.frame import Matrix, Picture, Plane

COLORSPACES: dict[Matrix, Colorspace] = {
    "bt601": Colorspace.ITU601,
    "bt709": Colorspace.ITU709,
    "bt2020": Colorspace.BT2020,
    "fcc": Colorspace.FCC,
    "smpte240m": Colorspace.SMPTE240M,
}


def plane_array(plane: VideoPlane) -> Plane:
    """(height, width) uint8 view of one 8-bit plane. It keeps the frame's memory alive."""
    flat = np.frombuffer(cast(bytes, plane), np.uint8)
    return flat.reshape(-1, plane.line_size)[: plane.height, : plane.width]


def yuv_frame(picture: Picture, x0: int = 0, x1: int | None = None, y0: int = 0, y1: int | None = None) -> av.VideoFrame:
    """Samples x0:x1, y0:y1 (x0, y0 even) of a picture as a frame on the same memory, tagged with its colours."""
    y = picture.y[y0:y1, x0:x1]
    h, w = y.shape
    chroma = np.s_[y0 // 2 : y0 // 2 + (h + 1) // 2, x0 // 2 : x0 // 2 + (w + 1) // 2]
    frame = av.VideoFrame.from_dlpack((y, picture.u[chroma], picture.v[chroma]), format="yuv420p", width=w, height=h)
    frame.colorspace = COLORSPACES[picture.matrix]
    frame.color_range = ColorRange.JPEG if picture.full_range else ColorRange.MPEG
    return frame
