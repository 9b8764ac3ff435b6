"""The kinds of video file that are written."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Container:
    """What holds H.264 with exact times."""

    format: str
    """FFmpeg's name."""
    suffixes: tuple[str, ...]
    """How its files are named by those who use them, the usual one first."""
    tick_s: Fraction | None = None
    """Of its own clock, where it has one."""


# Not AVI: it knows no variable rate.
CONTAINERS = (
    Container("mp4", (".mp4", ".m4v")),
    Container("mov", (".mov",)),
    Container("matroska", (".mkv",), Fraction(1, 1000)),
    Container("mpegts", (".ts",), Fraction(1, 90_000)),
)
SUFFIXES = tuple(suffix for container in CONTAINERS for suffix in container.suffixes)


def container_of(suffix: str) -> Container | None:
    """That of a file whose name ends so."""
    return next((c for c in CONTAINERS if suffix.lower() in c.suffixes), None)
