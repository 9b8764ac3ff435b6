"""The choice of the video stream of a container: sources read it, and sinks align the sound to it."""

from __future__ import annotations

from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream


def watched_video(container: InputContainer) -> VideoStream | None:
    """The video stream to read: the largest of those marked as default, or the largest of all if none is marked.

    Attached pictures and streams without a decoder are left out. None if no other is left.
    """
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    streams = [s for s in streams if s.codec_context is not None]
    default = [s for s in streams if s.disposition & Disposition.default]
    return max(default or streams, key=lambda s: (s.width or 0) * (s.height or 0), default=None)
