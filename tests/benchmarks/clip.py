"""A clip long enough to measure on: one repeated, without decoding."""

from __future__ import annotations

from pathlib import Path

import av


def repeated(source: Path, target: Path, times: int) -> None:
    """Copy the video packets of a clip `times` over into one file."""
    with av.open(str(target), "w") as out:
        stream, shift = None, 0
        for _ in range(times):
            with av.open(str(source)) as clip:
                video = clip.streams.video[0]
                stream = stream or out.add_stream_from_template(video)
                end = 0
                for packet in clip.demux(video):
                    if packet.dts is None:
                        continue
                    end = max(end, (packet.pts or 0) + (packet.duration or 0))
                    packet.pts, packet.dts, packet.stream = (packet.pts or 0) + shift, packet.dts + shift, stream
                    out.mux(packet)
                shift += end
