"""Packets looked at before they are decoded.

A picture that never came leaves no error: the decoder draws the next ones on what it has. H.264 and H.265 tell of
themselves what their pictures lean on, so that it can be known; gaps in time cannot, which a variable frame rate has too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from av.packet import Packet
from av.video.codeccontext import VideoCodecContext

from pipelines.sources.bitstream.h264 import H264Numbers
from pipelines.sources.bitstream.h265 import H265Numbers
from pipelines.sources.bitstream.references import NOTHING, PacketVerdict, Reader

READERS: dict[str, Callable[[], Reader]] = {"h264": H264Numbers, "hevc": H265Numbers}
NEW: Final = "new_extradata"
"""Side data of a packet: the container describes the stream anew."""


class PacketInspector:
    """Looks at the packets of one stream. Of codecs that number nothing there is nothing to say."""

    def __init__(self, context: VideoCodecContext) -> None:
        make = READERS.get(context.codec.canonical_name)
        self._reader = make() if make is not None else None
        if self._reader is not None:
            self._reader.configure(context.extradata)

    def at(self, packet: Packet) -> PacketVerdict:
        """What a packet says of itself, in decoding order."""
        if self._reader is None or not packet.size:
            return NOTHING
        if packet.has_sidedata(NEW):
            self._reader.configure(bytes(packet.get_sidedata(NEW)))
        return self._reader.look(bytes(packet))
