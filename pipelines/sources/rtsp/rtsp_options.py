"""Options of RTSP sources."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipelines.choices import RtspClientKind, RtspTransport
from pipelines.credentials import Credentials
from pipelines.sources.opening import Timeouts


@dataclass(frozen=True, slots=True)
class RtspOptions:
    """Options of one RTSP source."""

    client: RtspClientKind = "auto"
    """auto: the native client if it supports the camera's stream, else FFmpeg."""
    transport: RtspTransport = "tcp"
    limits: Timeouts = field(default_factory=Timeouts)
    tls_verify: bool = True
    """Check the certificate of rtsps:// cameras."""
    clock_trusted: bool = False
    """The clocks of the camera and of this machine are synchronised, for example by NTP."""
    credentials: Credentials | None = None
    """User and password; ignored if the address has its own."""
