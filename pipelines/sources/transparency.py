"""Pictures that can be seen through are laid on white, as on a page, whatever lies hidden in their transparent parts."""

from __future__ import annotations

from typing import cast

import av
import numpy as np
import numpy.typing as npt
from av.video.codeccontext import VideoCodecContext
from av.video.format import VideoFormat
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream

from pipelines.frame import Matrix
from pipelines.planes import SCALER_SPACES, color_range

SEEING_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""FFmpeg's own decoders of these leave out the transparency, which lies beside the picture in WebM."""


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
            frame, format="rgba", interpolation=flags, threads=1,
            src_colorspace=SCALER_SPACES[matrix], src_color_range=color_range(full_range), dst_color_range=color_range(True),
        )  # fmt: skip
        rgba = cast(npt.NDArray[np.uint8], converted.to_ndarray())
        alpha = rgba[..., 3:]
        if alpha.min() == 255:
            return frame
        ink = (255 - rgba[..., :3]).astype(np.uint16) * alpha
        ink += 127  # 255 * 255 + 127 is less than 2^16
        ink //= 255
        return av.VideoFrame.from_ndarray((255 - ink).astype(np.uint8), format="rgb24")
