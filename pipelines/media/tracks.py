"""Which video of a container is watched: sources read it, and sinks measure the sound against it."""

from __future__ import annotations

from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream


def watched_video(container: InputContainer) -> VideoStream | None:
    """The default video stream, the largest of several; where none is the default, the largest of all. Never an attached
    picture, nor one of a codec that nothing here decodes. None if there is no other."""
    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    streams = [s for s in streams if s.codec_context is not None]
    default = [s for s in streams if s.disposition & Disposition.default]
    return max(default or streams, key=lambda s: (s.width or 0) * (s.height or 0), default=None)
