"""Pictures that can be seen through are laid on white, as on a page, whatever lies hidden in their transparent parts."""

from __future__ import annotations

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.format import VideoFormat
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from pipelines.frame import Matrix
from pipelines.media.colour import scaler_code
from pipelines.media.planes import color_range, packed_array

SEEING_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""FFmpeg's own decoders of these leave out the transparency, which lies beside the picture in WebM."""


ROWS = 64
"""Worked on at a time: of a whole picture the steps between would take 12 bytes a pixel."""


def decoder_of(stream: VideoStream) -> VideoCodecContext:
    """The decoder that gives all of the stream's pictures: the stream's own, or one that sees their transparency."""
    name = SEEING_DECODERS.get(stream.codec_context.name)
    if name is None or stream.metadata.get("alpha_mode") != "1" or name not in av.codecs_available:
        return stream.codec_context
    context = av.CodecContext.create(name, "r")
    assert isinstance(context, VideoCodecContext)
    context.extradata = stream.codec_context.extradata
    return context


def transparent(kind: VideoFormat) -> bool:
    """Whether pictures of this format may have transparent parts. A palette's colours may be transparent."""
    return kind.has_palette or any(component.is_alpha for component in kind.components)


class Page:
    """White paper for the pictures of one source. Thread: the source's."""

    def __init__(self) -> None:
        self._to_rgba = VideoReformatter()

    def laid_on(self, frame: av.VideoFrame, matrix: Matrix, full_range: bool, flags: int) -> av.VideoFrame:
        """An opaque RGB frame of full range, or the frame itself if nothing of it is transparent.

        flags: the scaler's. Alpha is taken as straight, not as multiplied into the colours already.
        """
        converted = self._to_rgba.reformat(
            frame,
            format="rgba",
            interpolation=flags,
            threads=1,
            src_colorspace=scaler_code(matrix),
            src_color_range=color_range(full_range),
            dst_color_range=color_range(True),
        )
        rgba = packed_array(converted, 4)
        if rgba[..., 3].min() == 255:
            return frame
        page = av.VideoFrame(frame.width, frame.height, "rgb24")
        target = packed_array(page, 3)
        for top in range(0, frame.height, ROWS):
            rows = np.s_[top : top + ROWS]
            ink = (255 - rgba[rows, :, :3]).astype(np.uint16) * rgba[rows, :, 3:]
            ink += 127  # 255 * 255 + 127 is less than 2^16
            ink //= 255
            np.subtract(255, ink, out=target[rows], casting="unsafe")
        return page
