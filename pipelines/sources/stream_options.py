"""StreamOptions: the values that may differ from stream to stream. Imports nothing heavy, so that `--help` stays quick."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.choices import Fit, RtspClientKind, RtspTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The values that may differ from stream to stream. Times in seconds unless the name says otherwise."""

    stride: int = 1
    """Predict every n-th frame."""
    max_fps: float | None = None
    """Most frames per second that are predicted; None: all."""
    max_frames: int | None = None
    """Number of captured frames after which the stream ends; None: no limit."""
    budget_ms: float | None = None
    """Latency budget; None: the session's."""
    fit: Fit | None = None
    """How a frame is fitted to the model's input; None: as the model prefers."""
    topk: int | None = None
    """Most labels in an answer; None: as the model prefers."""
    realtime: bool = False
    """Play a file in real time, like a camera."""
    loop: bool = False
    """Repeat a file without end."""
    deinterlace: bool = False
    open_timeout_s: float = 10.0
    read_timeout_s: float = 5.0
    reconnect: bool = True
    """Open a lost camera again."""
    rtsp_client: RtspClientKind = "auto"
    rtsp_transport: RtspTransport = "tcp"
    tls_verify: bool = True
    camera_clock_trusted: bool = False
    """The camera's clock is set by the same source of time as this machine's."""
