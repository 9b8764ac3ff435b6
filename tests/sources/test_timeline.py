"""Rising times from 0, from all kinds of times in a container."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import pytest

from pipelines.frame import StreamInfo
from pipelines.sources.files.file import FileSource
from pipelines.sources.media_time import JUMP_S, Timeline
from tests.clips import numbered
from tests.sources.play import everything, numbers

TICKS = 90_000
FRAME = 3600


def _times(stamps: list[int | None], *, leaps: bool = False, rate: Fraction | int | None = 25) -> list[float]:
    timeline = Timeline(StreamInfo(Fraction(1, TICKS), Fraction(rate) if rate else None), leaps=leaps)
    found = [timeline.seconds(stamp) for stamp in stamps]
    assert all(t is not None for t in found)
    assert all(a < b for a, b in itertools.pairwise(found)), found  # type: ignore[operator]
    return found  # type: ignore[return-value]


def _steps(count: int, step_s: float = 0.04) -> list[float]:
    return pytest.approx([k * step_s for k in range(count)], abs=1e-9)  # type: ignore[return-value]


class TestTimeline:
    @pytest.mark.parametrize("start", [0, 126_000, -7200, 2**33 - 5 * FRAME])
    def test_begins_at_nought(self, start: int) -> None:
        assert _times([start + FRAME * k for k in range(10)]) == _steps(10)

    def test_without_any_time(self) -> None:
        assert _times([None] * 10) == _steps(10)
        assert _times([None] * 10, rate=Fraction(30000, 1001)) == _steps(10, 1001 / 30000)
        assert _times([None] * 10, rate=None) == _steps(10)

    def test_without_a_time_base(self) -> None:
        timeline = Timeline(StreamInfo(rate=Fraction(10)), leaps=False)
        assert [timeline.seconds(k) for k in (5, 900, None)] == _steps(3, 0.1)

    @pytest.mark.parametrize("holes", [{0}, {0, 1}, {3}, {3, 4}, {9}])
    def test_a_frame_without_a_time_gets_the_next_one(self, holes: set[int]) -> None:
        stamps = [None if k in holes else 5000 + FRAME * k for k in range(10)]
        assert _times(stamps) == _steps(10)

    @pytest.mark.parametrize("leaps", [True, False])
    def test_times_that_start_again_go_on(self, leaps: bool) -> None:
        once = [FRAME * k for k in range(50)]
        assert _times(once * 3, leaps=leaps) == _steps(150)

    @pytest.mark.parametrize("jump_s", [-3600, -0.5, 11, 3600, 2**33 / TICKS])
    def test_a_clock_that_was_set_costs_one_frame_period(self, jump_s: float) -> None:
        jump = round(jump_s * TICKS)
        stamps = [FRAME * k for k in range(50)] + [FRAME * k + jump for k in range(50, 100)]
        assert _times(stamps) == _steps(100)

    @pytest.mark.parametrize("outlier_s", [-3600, 3600, -0.04])
    def test_one_wrong_stamp_shifts_nothing_after_it(self, outlier_s: float) -> None:
        stamps = [FRAME * k for k in range(100)]
        stamps[50] += round(outlier_s * TICKS)
        assert _times(stamps) == _steps(100)

    def test_pictures_that_come_too_late_do_not_let_the_clock_run_ahead(self) -> None:
        """A key picture is missing: the damaged pictures of the next group come before the last one of their group."""
        timeline = Timeline(StreamInfo(Fraction(1, 25), Fraction(25)), leaps=False)
        order = [0, 1, 4, 5, 2, 3, 6, 7, 8]
        found = [timeline.seconds(k, late=k in (2, 3, 4, 5)) for k in order]
        assert all(a < b for a, b in itertools.pairwise(found))  # type: ignore[operator]
        assert [25 * (found[k] or 0) for k in (0, 1, 6, 7, 8)] == pytest.approx([0, 1, 6, 7, 8])

    def test_a_stamp_that_repeats(self) -> None:
        found = _times([0, FRAME, FRAME, 2 * FRAME, 3 * FRAME])
        assert found[:2] == _steps(2)
        assert found[-1] < 0.2

    def test_a_long_still_picture_is_believed_where_there_is_an_index(self) -> None:
        stamps: list[int | None] = [0, FRAME, FRAME + 60 * TICKS]
        assert _times(stamps, leaps=True) == pytest.approx([0, 0.04, 60.04])
        assert _times(stamps, leaps=False) == pytest.approx([0, 0.04, 0.08])

    def test_times_of_presentation_that_are_wrong_give_way_to_those_of_decoding(self) -> None:
        """FFmpeg makes presentation times up if a container has only decoding times, and swaps pictures (Matroska's VfW)."""
        timeline = Timeline(StreamInfo(Fraction(1, 25), Fraction(25)), leaps=True)
        stamps = [(2, 2), (4, 3), (3, 4), (6, 5), (5, 6), (8, 7), (7, 8), (10, 9)]
        found = [timeline.seconds(pts, dts) for pts, dts in stamps]
        assert all(a < b for a, b in itertools.pairwise(found))  # type: ignore[operator]
        assert found[3:] == pytest.approx([(k + 1) / 25 for k in range(2, 7)], abs=0.05)

    def test_times_of_decoding_only(self) -> None:
        timeline = Timeline(StreamInfo(Fraction(1, 50), Fraction(25)), leaps=True, presented=False)
        stamps = [(2, 4), (8, 6), (6, 8), (10, 10), (199, None), (198, None)]
        assert [timeline.seconds(pts, dts) for pts, dts in stamps] == _steps(6)

    def test_a_gap_up_to_the_limit_is_believed_everywhere(self) -> None:
        gap = round(JUMP_S * TICKS)
        assert _times([0, gap]) == [0, JUMP_S]
        assert _times([0, gap + 1]) == pytest.approx([0, 0.04])

    def test_a_week_of_ntsc_does_not_drift(self) -> None:
        base = Fraction(1001, 30000)
        timeline = Timeline(StreamInfo(base, 1 / base), leaps=True)
        last = 7 * 24 * 3600 * 30000 // 1001
        assert [timeline.seconds(k) for k in (0, 1, last)] == [0, float(base), float(last * base)]


class TestFiles:
    """More cases, and the times of the annotated video: tests/cases/test_times.py."""

    def _play(self, path: Path, count: int) -> list[float]:
        captures = everything(FileSource(path))
        assert numbers(captures) == [k % 100 for k in range(count)]
        times = [c.pts_s for c in captures]
        assert None not in times
        return times  # type: ignore[return-value]

    @pytest.mark.parametrize(
        ("suffix", "b_frames"), [("mp4", 0), ("mp4", 2), ("mkv", 0), ("mkv", 2), ("ts", 0), ("ts", 2), ("avi", 0)]
    )
    def test_constant_rate(self, suffix: str, b_frames: int, tmp_path: Path) -> None:
        clip = numbered(tmp_path / f"clip.{suffix}", frames=40, b_frames=b_frames)
        assert self._play(clip, 40) == pytest.approx([k / 25 for k in range(40)], abs=1e-3)

    def test_a_still_picture_of_a_minute(self, tmp_path: Path) -> None:
        clip = numbered(tmp_path / "still.mp4", frames=3, times=[0, 0.04, 60])
        assert self._play(clip, 3) == pytest.approx([0, 0.04, 60], abs=1e-3)
