"""The count of playable frames in a video after a failed write.

Encoder and muxer hold frames back, and the failed write may be incomplete: fewer frames can be played than were taken.
"""

from __future__ import annotations

from pathlib import Path

import av

from pipelines.media.local_files import LOCAL, file_address
from pipelines.sinks.containers import container_of

COUNTED = 1 << 30
"""Bytes. Larger files are not counted: the count reads the whole file, because a file without its end has no index."""


def remains(path: Path, taken: int) -> str:
    """A sentence about the playable part of a video. taken: frames that the sink accepted. Reads the file, decodes nothing."""
    try:
        if path.stat().st_size > COUNTED:
            return f"the video is incomplete; it was given {taken} frames"
        frames, seconds = _playable(path)
    except (OSError, av.FFmpegError, ValueError, IndexError):
        frames, seconds = 0, 0.0  # even the header is missing
    return f"the video ends after {frames} of the {max(taken, frames)} frames taken ({seconds:.2f} s)"


def _playable(path: Path) -> tuple[int, float]:
    """The number of whole frames in a file, and their duration in seconds."""
    container = container_of(path.suffix)
    with av.open(file_address(path), format=container.format if container else None, options=LOCAL) as file:
        video = file.streams.video[0]
        frames, first, last = 0, None, 0
        # The packet of the incomplete write is marked as corrupt.
        for packet in file.demux(video):
            if packet.size and not packet.is_corrupt and packet.pts is not None:
                frames += 1
                first = packet.pts if first is None else min(first, packet.pts)
                last = max(last, packet.pts + (packet.duration or 0))
        return frames, float((last - (first or 0)) * video.time_base) if video.time_base else 0.0
