"""Clips and servers for the sources' tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.clips import level, numbered
from tests.servers import Play, RtspServer
from tests.system import need


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """num.mp4: 100 numbered pictures, a key picture each second, sound. b.mkv: 50, with B-frames. num/0..4.png."""
    folder = tmp_path_factory.mktemp("clips")
    numbered(folder / "num.mp4", frames=100, sound=True)
    numbered(folder / "b.mkv", frames=50, b_frames=2)
    (folder / "num").mkdir()
    for k in range(5):
        Image.new("L", (64, 64), level(k)).save(folder / f"num/{k}.png")
    return folder


@pytest.fixture(scope="module")
def server(clips: Path) -> Iterator[RtspServer]:
    """A camera at the mount `cam` that repeats num.mp4 without its sound."""
    need("gst-rtsp-server")
    with RtspServer({"cam": Play(clips / "num.mp4", sound=False)}) as server:
        yield server


def ffmpeg(*arguments: object) -> None:
    """Run the ffmpeg command line."""
    need("ffmpeg")
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], check=True, timeout=60, stdin=subprocess.DEVNULL)
