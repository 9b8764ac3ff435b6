"""`watchline demo`: the labels are true, and the annotated video is the clip."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av

from samples import FOLDER
from tests.command import Demo, read_lines

CLIP = FOLDER / "sample.mp4"
RUN = Path("runs/demo")


def picture_times(path: Path) -> list[Fraction]:
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(video=0) if p.pts is not None]
        return sorted(p.pts * p.time_base for p in packets)  # type: ignore[operator]


def sound(path: Path) -> list[tuple[Fraction, bytes]]:
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(audio=0) if p.pts is not None]
        return [(p.pts * p.time_base, bytes(p)) for p in packets]  # type: ignore[operator]


def test_it_ends_well_and_says_where_to_look(demo: Demo) -> None:
    assert demo.done.code == 0, demo.done.err
    for name in ("annotated.mp4", "frames.jsonl", "report.json"):
        assert str(RUN / name) in demo.done.out
        assert (demo.folder / RUN / name).stat().st_size > 0
    assert sorted(p.name for p in (demo.folder / RUN).iterdir()) == ["annotated.mp4", "frames.jsonl", "report.json"]


def test_the_labels_are_the_expected_ones(demo: Demo) -> None:
    expected = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    best = [line["labels"][0]["id"] for line in read_lines(demo.folder / RUN / "frames.jsonl")]
    for shot in expected["shots"]:
        said = best[shot["first_frame"] : shot["last_frame"] + 1]
        assert said.count(shot["id"]) >= 0.95 * len(said), shot["name"]


def test_the_video_has_the_frames_and_times_of_the_clip(demo: Demo) -> None:
    before, after = picture_times(CLIP), picture_times(demo.folder / RUN / "annotated.mp4")
    assert len(before) == len(after) == 620
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) <= Fraction(1, 1000)


def test_the_sound_is_the_clips_bit_for_bit(demo: Demo) -> None:
    before, after = sound(CLIP), sound(demo.folder / RUN / "annotated.mp4")
    assert [data for _, data in before] == [data for _, data in after]
    assert max(abs(a[0] - b[0]) for a, b in zip(before, after, strict=True)) <= Fraction(1, 1000)


def test_every_frame_is_accounted_for(demo: Demo) -> None:
    report = json.loads((demo.folder / RUN / "report.json").read_text(encoding="utf-8"))
    stream = report["streams"]["sample"]
    assert (stream["captured"], stream["shown"], sum(stream["dropped"].values()), stream["failed"]) == (620, 620, 0, 0)
    assert [line["frame"] for line in read_lines(demo.folder / RUN / "frames.jsonl")] == list(range(620))
