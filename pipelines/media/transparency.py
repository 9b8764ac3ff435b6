"""Transparent pictures are composited on white, as browsers show them; the colours of transparent parts have no effect."""

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

ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""Codec -> decoder that reads transparency. FFmpeg's own decoders ignore it; WebM stores it beside the picture."""


ROWS = 64
"""Rows that are composited at a time: for a whole picture the intermediate arrays would take 12 bytes a pixel."""


def decoder_of(stream: VideoStream) -> VideoCodecContext:
    """The stream's own decoder, or a new one that reads transparency if the stream has it and FFmpeg has such a decoder."""
    name = ALPHA_DECODERS.get(stream.codec_context.name)
    if name is None or stream.metadata.get("alpha_mode") != "1" or name not in av.codecs_available:
        return stream.codec_context
    context = av.CodecContext.create(name, "r")
    assert isinstance(context, VideoCodecContext)
    context.extradata = stream.codec_context.extradata
    return context


def transparent(kind: VideoFormat) -> bool:
    """Whether pictures of this format may have transparent parts. A palette's colours may be transparent."""
    return kind.has_palette or any(component.is_alpha for component in kind.components)


class WhiteBackground:
    """Composites the pictures of one source on white. Thread: the source's."""

    def __init__(self) -> None:
        self._to_rgba = VideoReformatter()

    def composited(self, frame: av.VideoFrame, matrix: Matrix, full_range: bool, flags: int) -> av.VideoFrame:
        """The frame on white as opaque RGB with full range; the frame itself if no pixel is transparent.

        matrix, full_range: of the given frame. flags: of the scaler. Alpha is straight, not premultiplied.
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
