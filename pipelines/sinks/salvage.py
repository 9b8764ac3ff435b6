"""What can be played of a video whose writing failed: the encoder, the muxer or a write that was cut in two kept the rest."""

from __future__ import annotations

from pathlib import Path

import av

from pipelines.media.local_files import LOCAL, file_address
from pipelines.sinks.containers import container_of

COUNTED = 1 << 30
"""Bytes. Counting reads the whole file, since one without its end has no index: of larger ones nothing is said."""


def remains(path: Path, taken: int) -> str:
    """What is left of a video that was given `taken` frames, in a few words. Reads it, decodes nothing."""
    try:
        if path.stat().st_size > COUNTED:
            return f"the video is incomplete; it was given {taken} frames"
        frames, seconds = _playable(path)
    except (OSError, av.FFmpegError, ValueError, IndexError):
        frames, seconds = 0, 0.0  # not so much as its head is there
    return f"the video ends after {frames} of the {max(taken, frames)} frames taken ({seconds:.2f} s)"


def _playable(path: Path) -> tuple[int, float]:
    """Whole frames of a file, and their length in seconds."""
    container = container_of(path.suffix)
    with av.open(file_address(path), format=container.format if container else None, options=LOCAL) as file:
        video = file.streams.video[0]
        frames, first, last = 0, None, 0
        # The one that the failing write cut in two is marked as corrupt.
        for packet in file.demux(video):
            if packet.size and not packet.is_corrupt and packet.pts is not None:
                frames += 1
                first = packet.pts if first is None else min(first, packet.pts)
                last = max(last, packet.pts + (packet.duration or 0))
        return frames, float((last - (first or 0)) * video.time_base) if video.time_base else 0.0
