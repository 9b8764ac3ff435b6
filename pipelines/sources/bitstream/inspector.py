"""Inspects packets before they are decoded, to find references to pictures that never came.

A missing picture causes no decoder error: the decoder predicts the next pictures from other ones. The headers of H.264 and
H.265 name the references of a picture, so a missing one can be found. Gaps in time prove nothing: streams with a variable
frame rate have them too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from av.packet import Packet
from av.video.codeccontext import VideoCodecContext

from pipelines.sources.bitstream.h264 import H264Numbers
from pipelines.sources.bitstream.h265 import H265Numbers
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict, Reader

READERS: dict[str, Callable[[], Reader]] = {"h264": H264Numbers, "hevc": H265Numbers}
NEW: Final = "new_extradata"
"""Kind of a packet's side data: the container sends a new header of the stream."""


class PacketInspector:
    """Inspects the packets of one stream. Thread: one, the owner's.

    For codecs other than H.264 and H.265 every verdict is NO_VERDICT.
    """

    def __init__(self, context: VideoCodecContext) -> None:
        make = READERS.get(context.codec.canonical_name)
        self._reader = make() if make is not None else None
        if self._reader is not None:
            self._reader.configure(context.extradata)

    def at(self, packet: Packet) -> PacketVerdict:
        """The verdict on the next packet in decoding order."""
        if self._reader is None or not packet.size:
            return NO_VERDICT
        if packet.has_sidedata(NEW):
            self._reader.configure(bytes(packet.get_sidedata(NEW)))
        return self._reader.look(bytes(packet))
