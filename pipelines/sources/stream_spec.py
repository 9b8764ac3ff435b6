"""StreamSpec: one stream as a person requested it, before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipelines.choices import Fit, Kind, RtspClientKind, RtspTransport
from pipelines.credentials import Credentials
from pipelines.frame import Region
from pipelines.redact import redact
from pipelines.sources.identify import identify


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


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream. `address` never holds credentials."""

    name: str
    kind: Kind
    address: str
    pictures: tuple[Path, ...] = ()
    """The files of a stream of kind "images", in order."""
    credentials: Credentials | None = None
    zones: tuple[Region, ...] = ()
    """The regions that the model answers for; none: the whole frame."""
    options: StreamOptions = field(default_factory=StreamOptions)

    def __repr__(self) -> str:
        """Without secrets: an address may have one in its path or query."""
        return f"StreamSpec({self.name!r}, {self.kind!r}, {redact(self.address)!r}, {self.options})"

    @staticmethod
    def of(name: str | None, source: str | Path, options: StreamOptions | None = None) -> StreamSpec:
        """The spec of one source as a person writes it: a file, rtsp://user:password@camera/door, a number of a device,
        /dev/videoN, synthetic:WxH@FPS. User and password of a URL become the credentials. name: None makes one from the source.

        :raises UsageError: if the source is empty, malformed or of an unknown kind.
        """
        found = identify(str(source))
        return StreamSpec(
            name or found.name,
            found.kind,
            found.address,
            found.pictures,
            found.credentials,
            options=options or StreamOptions(),
        )

    @property
    def regions(self) -> tuple[Region, ...]:
        """One row of a batch each: the zones, or the whole frame with the fit and the number of labels of the options."""
        return self.zones or (Region(fit=self.options.fit, limit=self.options.topk),)

    @property
    def stored(self) -> bool:
        """Whether all frames are on the disk: the stream has an end, and its frames do not age."""
        return self.kind in ("file", "images")
