"""Container: the kinds of video file that are written."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Container:
    """A file format that stores H.264 with exact times."""

    format: str
    """FFmpeg's name of the format."""
    suffixes: tuple[str, ...]
    """The usual endings of file names, the most common one first."""
    tick_s: Fraction | None = None
    """One tick of the format's own clock; None: the clock is chosen per file."""


# Without AVI, which has no variable frame rate.
CONTAINERS = (
    Container("mp4", (".mp4", ".m4v")),
    Container("mov", (".mov",)),
    Container("matroska", (".mkv",), Fraction(1, 1000)),
    Container("mpegts", (".ts",), Fraction(1, 90_000)),
)
SUFFIXES = tuple(suffix for container in CONTAINERS for suffix in container.suffixes)


def container_of(suffix: str) -> Container | None:
    """The container of a file name's ending, for example ".MP4"; None if it is not among `SUFFIXES`."""
    return next((c for c in CONTAINERS if suffix.lower() in c.suffixes), None)
