"""How cameras over RTSP are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipelines.sources.opening import Timeouts

Client = Literal["auto", "native", "ffmpeg"]
Transport = Literal["tcp", "udp"]


@dataclass(frozen=True, slots=True)
class RtspOptions:
    """client: auto is native where it speaks the camera's stream, else FFmpeg's. tls_verify: check the certificate of
    rtsps://. clock_trusted: the camera's clock and this machine's are set by one source of time."""

    client: Client = "auto"
    transport: Transport = "tcp"
    limits: Timeouts = field(default_factory=Timeouts)
    tls_verify: bool = True
    clock_trusted: bool = False
