"""How cameras over RTSP are read."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.choices import RtspClientKind, RtspTransport
from pipelines.credentials import Credentials
from pipelines.sources.opening import Timeouts


@dataclass(frozen=True, slots=True)
class RtspOptions:
    """client: auto is native where it speaks the camera's stream, else FFmpeg's. tls_verify: check the certificate of
    rtsps://. clock_trusted: the camera's clock and this machine's are set by one source of time."""

    client: RtspClientKind = "auto"
    transport: RtspTransport = "tcp"
    limits: Timeouts = field(default_factory=Timeouts)
    tls_verify: bool = True
    clock_trusted: bool = False
    credentials: Credentials | None = None
    """Taken unless the address has its own."""
