"""Files as FFmpeg must be told of them."""

from __future__ import annotations

from pathlib import Path


def file_address(path: Path | str) -> str:
    """A path as FFmpeg must get it: no colon, percent or dash in a name means anything."""
    return f"file:{path}"
