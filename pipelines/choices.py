"""The closed choices that options offer and parts of the library take. It imports nothing, so `--help` can read them."""

from __future__ import annotations

from typing import Literal

Fit = Literal["crop", "squash", "pad"]
"""How a picture of another shape becomes the model's input: cut its middle out, stretch it, or add bars."""
SourceKind = Literal["file", "images", "rtsp", "network", "device", "synthetic"]
"""Kinds of source."""
RtspClientKind = Literal["auto", "native", "ffmpeg"]
"""The reader of rtsp:// addresses; auto: native unless the stream needs FFmpeg."""
RtspTransport = Literal["tcp", "udp"]
Batching = Literal["dynamic", "fixed"]
"""How requests ride in batches: by their deadlines, or in full batches."""
