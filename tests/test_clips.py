"""The clips that the other tests trust."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from tests.clips import level, lumas, number_of, numbered


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain.mp4", {}),
        ("b.mp4", {"b_frames": 2}),
        ("b.mkv", {"b_frames": 3, "gop": 50}),
        ("steps.mp4", {"frames": 230, "step": 1, "first": 7}),
        ("odd.mkv", {"size": (65, 33), "codec": "ffv1"}),
        ("big.mp4", {"size": (640, 360), "frames": 30}),
        ("hevc.mp4", {"codec": "libx265"}),
        ("old.avi", {"codec": "mpeg4"}),
        ("transport.ts", {"gop": 1}),
        ("sound.mp4", {"sound": True}),
    ],
)
def test_luma_is_the_frame_number_exactly(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    path = numbered(tmp_path / name, **options)
    first, step = options.get("first", 0), options.get("step", 2)
    expected = [level(first + k, step) for k in range(options.get("frames", 100))]
    found = list(lumas(path))
    assert [round(v) for v in found] == expected
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < 0.25


def test_level_and_number_are_inverse() -> None:
    assert [number_of(level(n)) for n in range(110)] == list(range(110))
    assert level(110) == level(0) == 16
    assert level(109) == 234


def test_rate_and_times(tmp_path: Path) -> None:
    ntsc = numbered(tmp_path / "ntsc.mp4", frames=30, rate=Fraction(30000, 1001), b_frames=2)
    times = [0.0, 0.033, 0.5, 0.6, 1.9]
    vfr = numbered(tmp_path / "vfr.mkv", frames=5, times=times)
    with av.open(str(ntsc)) as container:
        assert container.streams.video[0].average_rate == Fraction(30000, 1001)
        found = [f.time for f in container.decode(video=0)]
    assert found == pytest.approx([k * 1001 / 30000 for k in range(30)], abs=1e-4)
    with av.open(str(vfr)) as container:
        assert [f.time for f in container.decode(video=0)] == pytest.approx(times, abs=1e-6)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_rotation_is_clockwise(tmp_path: Path, rotation: Any) -> None:
    path = numbered(tmp_path / "turned.mp4", frames=3, size=(64, 32), rotation=rotation)
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    assert -frame.rotation % 360 == rotation  # FFmpeg counts counter-clockwise


def test_sound_is_as_long_as_the_video(tmp_path: Path) -> None:
    path = numbered(tmp_path / "sound.mp4", frames=50, sound=True)
    with av.open(str(path)) as container:
        assert container.streams.audio[0].codec_context.name == "aac"
        samples = sum(f.samples for f in container.decode(audio=0))
    assert samples / 48000 == pytest.approx(2.0, abs=0.06)
