"""StreamSpec: one stream as a person requested it, before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipelines.choices import SourceKind
from pipelines.credentials import Credentials
from pipelines.errors import UsageError
from pipelines.frame import Region
from pipelines.redact import redact
from pipelines.sources.identify import identify
from pipelines.sources.stream_options import StreamOptions


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One stream. `address` never holds credentials."""

    name: str
    kind: SourceKind
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
        if not isinstance(source, str | Path):
            raise UsageError(f"the source of the stream {name!r} must be a text or a path, got {source!r}")
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
