"""Marks of corrupt pictures: the rule alone, and on real files with real damage."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from pipelines.errors import SourceError
from pipelines.frame import Capture, StreamInfo
from pipelines.sources.bitstream.references import PacketVerdict
from pipelines.sources.decode import REFRESH, CorruptionTracker, decoded, stream_info
from pipelines.sources.files.file import FileSource
from pipelines.sources.media_time import Timeline
from tests.clips import level, numbered
from tests.sources.conftest import ffmpeg
from tests.sources.play import RecordingWatch, everything, numbers


@dataclass(frozen=True)
class Made:
    """A packet with the fields that the rule reads."""

    pts: int
    is_keyframe: bool = False
    is_corrupt: bool = False


def _trusted(packets: Iterable[Made], refused: Iterable[int] = ()) -> list[bool]:
    """Feed packets in decoding order; for each, whether its picture counts as clean."""
    trust, answers = CorruptionTracker(), []
    for index, packet in enumerate(packets):
        trust.packet(index, packet)  # type: ignore[arg-type]
        if index in refused:
            trust.damaged(index, packet.pts)
        answers.append(not trust.corrupt(index, packet.pts))
    return answers


def _gops(*lengths: int) -> list[Made]:
    marks = [k == 0 for n in lengths for k in range(n)]
    return [Made(pts, key) for pts, key in enumerate(marks)]


class TestTrust:
    def test_a_clean_stream(self) -> None:
        assert all(_trusted(_gops(10, 10)))

    def test_from_a_refused_packet_to_the_next_key_packet(self) -> None:
        answers = _trusted(_gops(10, 10, 10), refused=[13])
        assert answers == [not 13 <= k < 20 for k in range(30)]

    def test_a_flagged_packet(self) -> None:
        packets = _gops(10, 10)
        packets[4] = Made(4, is_corrupt=True)
        assert _trusted(packets) == [not 4 <= k < 10 for k in range(20)]

    def test_a_flagged_key_packet_heals_nothing(self) -> None:
        packets = _gops(5, 5, 5)
        packets[5] = Made(5, True, True)
        assert _trusted(packets, refused=[3]) == [not 3 <= k < 10 for k in range(15)]

    def test_a_key_packet_right_behind_a_flagged_one_heals_nothing(self) -> None:
        """In a transport stream the flag is one packet early: the key picture after it is the damaged one."""
        packets = _gops(10, 10, 10)
        packets[9] = Made(9, is_corrupt=True)
        assert _trusted(packets) == [not 9 <= k < 20 for k in range(30)]

    def test_two_faults_in_two_groups(self) -> None:
        assert _trusted(_gops(5, 5, 5, 5), refused=[2, 7]) == [not (2 <= k < 5 or 7 <= k < 10) for k in range(20)]

    def test_before_the_first_key_packet_nothing_is_clean(self) -> None:
        packets = [Made(k) for k in range(4)] + [Made(k + 4, key.is_keyframe) for k, key in enumerate(_gops(6))]
        assert _trusted(packets) == [k >= 4 for k in range(10)]

    def test_an_open_group_leans_on_the_damaged_one(self) -> None:
        """Decoded I5 B3 B4 P8 B6 B7: pictures shown before the key picture stay corrupt."""
        order = [Made(0, True), Made(2), Made(1), Made(5, True), Made(3), Made(4), Made(8), Made(6), Made(7)]
        answers = dict(zip((m.pts for m in order), _trusted(order, refused=[1]), strict=True))
        assert [answers[pts] for pts in range(9)] == [True, False, False, False, False, True, True, True, True]

    def test_what_leads_a_key_picture_spoils_nothing_behind_it(self) -> None:
        """Decoded I0 P3 B1 B2 I6 B4 B5 P9 B7 B8: without B4, only B5 may be corrupt."""
        order = [Made(0, True), Made(3), Made(1), Made(2), Made(6, True), Made(4), Made(5), Made(9), Made(7), Made(8)]
        answers = dict(zip((m.pts for m in order), _trusted(order, refused=[5]), strict=True))
        assert [pts for pts in range(10) if not answers[pts]] == [4, 5]

    def test_a_clock_that_starts_anew_does_not_put_pictures_before_the_key_that_healed(self) -> None:
        """Two joined recordings, the first one damaged."""
        assert _trusted(_gops(10, 10) * 2, refused=[3]) == [not 3 <= k < 10 for k in range(40)]

    def test_a_picture_that_comes_out_later_is_judged_by_the_packet_that_made_it(self) -> None:
        trust = CorruptionTracker()
        for index, packet in enumerate(_gops(10)):
            trust.packet(index, packet)  # type: ignore[arg-type]
        trust.damaged(6)
        assert not trust.corrupt(5, 5)
        assert trust.corrupt(6, 6)
        assert trust.corrupt(9, 9)

    def test_intra_refresh_never_sends_a_key_packet_again(self) -> None:
        answers = _trusted([Made(0, True)] + [Made(k) for k in range(1, REFRESH + 50)], refused=[10])
        assert answers == [not 10 <= k < 10 + REFRESH for k in range(REFRESH + 50)]

    def test_joining_intra_refresh(self) -> None:
        answers = _trusted([Made(k) for k in range(REFRESH + 50)])
        assert answers == [k >= REFRESH for k in range(REFRESH + 50)]

    def test_a_wave_of_intra_refresh_heals_what_was_damaged_before_it_began(self) -> None:
        trust, answers = CorruptionTracker(), []
        for index in range(40):
            trust.packet(index, Made(index, index == 0), PacketVerdict(renewed={15: 8, 30: 10}.get(index)))  # type: ignore[arg-type]
            if index == 10:
                trust.damaged(index)
            answers.append(not trust.corrupt(index, index))
        assert answers == [not 10 <= k < 30 for k in range(40)]

    def test_a_key_packet_that_only_begins_such_a_wave_heals_nothing(self) -> None:
        trust = CorruptionTracker()
        trust.packet(0, Made(0, True), PacketVerdict(key=False))  # type: ignore[arg-type]
        assert trust.corrupt(0, 0)

    def test_what_leans_on_a_missing_packet(self) -> None:
        trust, answers = CorruptionTracker(), []
        for index, packet in enumerate(_gops(10, 10)):
            trust.packet(index, packet, PacketVerdict(missing=index == 4))  # type: ignore[arg-type]
            answers.append(not trust.corrupt(index, packet.pts))
        assert answers == [not 4 <= k < 10 for k in range(20)]

    def test_a_stream_that_is_damaged_for_ever_needs_no_memory_for_it(self) -> None:
        trust = CorruptionTracker()
        for index in range(20_000):
            trust.packet(index, Made(index, index % 2 == 0))  # type: ignore[arg-type]
            trust.damaged(index)
            assert trust.corrupt(index, index)
        assert len(trust._faults) <= REFRESH


# Real damage. GOP of 10, 50 frames.

Damage = Callable[[int, bytes], bytes | None]


def _damaged(source: Path, target: Path, damage: Damage) -> Path:
    """Copy the packets; `damage` gives each one's new bytes, or None to leave it out."""
    with av.open(str(source)) as old, av.open(str(target), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for number, packet in enumerate(p for p in old.demux(video=0) if p.size):
            data = damage(number, bytes(packet))
            if data is None:
                continue
            copy = av.Packet(data)
            copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
            copy.duration, copy.is_keyframe, copy.stream = packet.duration or 0, packet.is_keyframe, stream
            new.mux(copy)
    return target


def _flipped(at: int, share: float = 0.3) -> Damage:
    """Packet `at` with inverted bytes behind its header."""

    def damage(number: int, data: bytes) -> bytes:
        if number != at:
            return data
        values = np.frombuffer(data, np.uint8).copy()
        begin = min(12, len(values) // 2)
        values[begin :: max(1, round(1 / share))] ^= 0xFF
        return values.tobytes()

    return damage


def _zeroed(at: int) -> Damage:
    return lambda number, data: bytes(len(data)) if number == at else data


class Scene:
    """50 frames with an object that moves over the numbered luma, so that damage is visible and each packet is long enough."""

    @staticmethod
    def make(path: Path, **how: Any) -> Path:
        from tests.clips import write

        rng = np.random.default_rng(5)
        texture = rng.integers(-12, 12, (96, 96))

        def pictures() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for k in range(50):
                y = (level(k) + np.roll(texture, 3 * k, 1)).clip(0, 255).astype(np.uint8)
                yield y, np.full((48, 48), 128, np.uint8), np.full((48, 48), 128, np.uint8)

        return write(path, pictures(), size=(96, 96), **{"gop": 10, **how})


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Scene.make(tmp_path_factory.mktemp("scene") / "scene.mkv")


@pytest.fixture(scope="module")
def clean(scene: Path) -> list[Capture]:
    return everything(FileSource(scene))


def _wrong(capture: Capture, clean: list[Capture]) -> bool:
    """Whether the picture differs from that of the same time in the undamaged file."""
    twin = min(clean, key=lambda c: abs((c.pts_s or 0) - (capture.pts_s or 0)))
    return bool(np.abs(twin.picture.y.astype(int) - capture.picture.y).max() > 2)


def _times_of(captures: Iterable[Capture]) -> list[int]:
    return [round(25 * (c.pts_s or 0)) for c in captures]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("at", [3, 13, 25, 30, 49])
@pytest.mark.parametrize("how", [_flipped, _zeroed])
def test_no_damaged_picture_is_trusted_and_the_next_group_is(
    how: Callable[[int], Damage], at: int, threads: int, scene: Path, clean: list[Capture], tmp_path: Path
) -> None:
    reports = RecordingWatch()
    captures = everything(FileSource(_damaged(scene, tmp_path / "bad.mkv", how(at)), threads=threads), reports)
    assert reports.decode_errors or any(c.corrupt for c in captures)
    smeared = [c for c in captures if not c.corrupt and _wrong(c, clean)]
    assert smeared == [], f"trusted: {_times_of(smeared)}"
    trusted = set(_times_of(c for c in captures if not c.corrupt))
    end = (at // 10 + 1) * 10
    assert trusted >= set(range(at)) | set(range(end, 50)), "good frames before and after must stay"
    assert not trusted & set(range(at, end))
    assert all(b.pts_s > a.pts_s for a, b in pairwise(captures))  # type: ignore[operator]


@pytest.mark.parametrize("at", [3, 17, 30])
def test_b_frames(at: int, tmp_path: Path) -> None:
    good = Scene.make(tmp_path / "b.mkv", b_frames=2)
    clean = everything(FileSource(good))
    assert not any(c.corrupt for c in clean)
    captures = everything(FileSource(_damaged(good, tmp_path / "bad.mkv", _flipped(at))))
    assert _times_of(c for c in captures if not c.corrupt and _wrong(c, clean)) == []
    trusted = set(_times_of(c for c in captures if not c.corrupt))
    assert trusted >= set(range((at // 10) * 10 - 3)) | set(range((at // 10 + 1) * 10 + 1, 50))


def test_an_open_group(tmp_path: Path) -> None:
    good = Scene.make(
        tmp_path / "open.mkv",
        codec="libx265",
        b_frames=2,
        options={"x265-params": "log-level=none:open-gop=1:keyint=10:min-keyint=10:scenecut=0:bframes=2:b-adapt=0"},
    )
    clean = everything(FileSource(good))
    assert len(clean) == 50
    captures = everything(FileSource(_damaged(good, tmp_path / "bad.mkv", _zeroed(14))))
    assert _times_of(c for c in captures if not c.corrupt and _wrong(c, clean)) == []
    assert len([c for c in captures if not c.corrupt]) >= 30


def test_joining_in_the_middle_of_a_group(scene: Path, clean: list[Capture], tmp_path: Path) -> None:
    captures = everything(FileSource(_damaged(scene, tmp_path / "cut.mkv", lambda k, data: data if k >= 33 else None)))
    assert len(captures) == 17
    assert [c.corrupt for c in captures] == [k < 7 for k in range(17)]


def test_intra_refresh_is_clean_again_one_refresh_after_the_damage(tmp_path: Path) -> None:
    good = numbered(
        tmp_path / "refresh.mkv",
        frames=REFRESH + 60,
        gop=10_000,
        step=1,
        options={"x264-params": "intra-refresh=1:keyint=30", "preset": "ultrafast"},
    )
    captures = everything(FileSource(_damaged(good, tmp_path / "bad.mkv", _zeroed(20))))
    corrupt = {round(25 * (c.pts_s or 0)) for c in captures if c.corrupt}
    assert corrupt
    assert min(corrupt) >= 20
    assert max(corrupt) <= 20 + REFRESH
    tail = [c for c in captures if round(25 * (c.pts_s or 0)) > 20 + REFRESH]
    assert len(tail) > 30
    assert not any(c.corrupt for c in tail)


def test_noise_in_a_file(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.mp4"
    good = numbered(tmp_path / "good.mp4", frames=100, gop=10)
    ffmpeg("-i", good, "-c", "copy", "-bsf:v", "noise=amount='10*eq(mod(n,23),7)'", noisy)
    reports = RecordingWatch()
    captures = everything(FileSource(noisy), reports)
    assert any(c.corrupt for c in captures) or reports.decode_errors
    for c in captures:
        wrong = abs(float(c.picture.y.mean()) - level(round(25 * (c.pts_s or 0)))) > 1
        assert c.corrupt or not wrong


def test_half_of_a_file_with_its_index_first(scene: Path, clean: list[Capture], tmp_path: Path) -> None:
    """Case C37: every complete picture is returned, and the incomplete packet is counted."""
    fast, cut = tmp_path / "fast.mp4", tmp_path / "cut.mp4"
    ffmpeg("-i", scene, "-c", "copy", "-movflags", "+faststart", fast)
    cut.write_bytes(fast.read_bytes()[: fast.stat().st_size * 6 // 10])
    reports = RecordingWatch()
    captures = everything(FileSource(cut), reports)
    good = [c for c in captures if not c.corrupt]
    assert 20 < len(good) < 40
    assert _times_of(good) == list(range(len(good)))
    assert _times_of(c for c in good if _wrong(c, clean)) == []
    assert len(reports.decode_errors) == 1


# The decoder's loop.


def _decode(path: Path, **how: Any) -> Iterator[Capture]:
    reports = how.pop("watch", None) or RecordingWatch()
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        info = stream_info(stream)
        packets = how.pop("packets", lambda c, s: c.demux(s))(container, stream)
        yield from decoded(
            packets, stream, stop=threading.Event(), watch=reports, info=info, timeline=Timeline(info, leaps=True), **how
        )


def test_sound_before_the_picture_loses_no_frame(tmp_path: Path) -> None:
    """The packet that flushes the decoder must reach it even if the video is not the first stream."""
    swapped = tmp_path / "swapped.mp4"
    ffmpeg(
        "-i",
        numbered(tmp_path / "b.mp4", frames=50, b_frames=2, sound=True),
        "-map",
        "0:a",
        "-map",
        "0:v",
        "-c",
        "copy",
        swapped,
    )
    captures = everything(FileSource(swapped))
    assert numbers(captures) == list(range(50))
    assert not any(c.corrupt for c in captures)


def test_silence_is_measured_from_the_last_picture_and_by_any_packet(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "clip.mkv", frames=20, sound=True)
    now = [0.0]

    def packets(container: Any, stream: Any) -> Iterator[Any]:
        for k, packet in enumerate(container.demux()):
            if packet.stream.type == "video" and k > 15:
                continue
            now[0] += 0.1
            yield packet

    captures: list[Capture] = []
    with pytest.raises(SourceError, match=r"no picture for 0.5 s \(the read timeout\)"):
        captures.extend(_decode(clip, packets=packets, silence_s=0.5, clock=lambda: now[0]))
    assert captures
    assert 0.5 < now[0] - captures[-1].decoded_s < 0.65


def test_what_a_demuxer_gives_out_when_its_read_was_broken_off_is_not_shown(tmp_path: Path) -> None:
    """FFmpeg holds a picture until the next one begins, and returns it when the read times out: it is as old as the timeout."""
    clip = numbered(tmp_path / "clip.mkv", frames=20)
    now = [0.0]

    def packets(container: Any, stream: Any) -> Iterator[Any]:
        for k, packet in enumerate(container.demux(stream)):
            now[0] += 0.5 if k == 10 else 0.49
            yield packet

    captures: list[Capture] = []
    with pytest.raises(SourceError, match=r"nothing came within 0.5 s \(the read timeout\)"):
        captures.extend(_decode(clip, packets=packets, silence_s=0.5, clock=lambda: now[0]))
    assert numbers(captures) == list(range(10))


def test_a_gap_of_the_transport_is_damage(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "clip.mkv", frames=30, gop=10)
    asked = iter(range(100))
    captures = list(_decode(clip, gaps=lambda: next(asked) == 13))
    assert [c.corrupt for c in captures] == [13 <= k < 20 for k in range(30)]


def test_arrival_is_stamped_with_the_packet_that_freed_the_picture(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "b.mkv", frames=30, b_frames=2)
    now = [0.0]

    def packets(container: Any, stream: Any) -> Iterator[Any]:
        for packet in container.demux(stream):
            now[0] += 1
            yield packet

    captures = list(_decode(clip, packets=packets, clock=lambda: now[0]))
    assert numbers(captures) == list(range(30))
    assert all(c.arrived_s == c.decoded_s for c in captures), "the clock stands still while a packet is decoded"
    assert all(a.arrived_s <= b.arrived_s for a, b in pairwise(captures))


def test_what_a_container_says_of_a_stream(tmp_path: Path) -> None:
    with av.open(str(numbered(tmp_path / "clip.mp4", frames=50, rate=Fraction(30000, 1001)))) as container:
        info = stream_info(container.streams.video[0], "x")
    assert info == StreamInfo(info.time_base, Fraction(30000, 1001), 50, info.duration_s, "x")
    assert info.duration_s == pytest.approx(50 * 1001 / 30000, abs=1e-3)


def test_the_size_may_change_in_the_middle(tmp_path: Path) -> None:
    joined = tmp_path / "sizes.ts"
    for k, size in enumerate(((64, 64), (96, 80))):
        numbered(tmp_path / f"{k}.ts", frames=10, size=size, first=10 * k)
    joined.write_bytes((tmp_path / "0.ts").read_bytes() + (tmp_path / "1.ts").read_bytes())
    captures = everything(FileSource(joined))
    assert [c.picture.y.shape for c in captures] == [(64, 64)] * 10 + [(80, 96)] * 10
    assert numbers(captures) == list(range(20))


def test_odd_sizes(tmp_path: Path) -> None:
    odd = tmp_path / "odd.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=642x482:d=0.2", "-vf", "scale=321:241", "-c:v", "ffv1", "-pix_fmt", "yuv444p", odd)
    for capture in everything(FileSource(odd)):
        y, u, v = capture.picture.y, capture.picture.u, capture.picture.v
        assert (y.shape, u.shape, v.shape) == ((241, 321), (121, 161), (121, 161))


UNFINISHED = """
import sys, threading
from pathlib import Path
from pipelines.sources.files.file import FileSource
from pipelines.sources.rtsp.ffmpeg_reader import _listen_for_losses
from pipelines.watch import NullWatch
_listen_for_losses()
for _ in range(150):
    frames = FileSource(Path(sys.argv[1]), threads=2).frames(threading.Event(), NullWatch())
    next(frames)
    frames.close()
"""


def test_closing_a_decoder_whose_threads_are_at_work_does_not_deadlock(tmp_path: Path) -> None:
    """Case C46: a frame thread that logs a line needs the lock that the thread which frees the decoder holds."""
    clip = numbered(tmp_path / "b.mkv", frames=50, b_frames=2)
    subprocess.run([sys.executable, "-c", UNFINISHED, str(clip)], check=True, timeout=20, cwd=Path(__file__).parents[2])


ENDLESS = """
import sys, threading
from pathlib import Path
from pipelines.sources.files.file import FileSource
from pipelines.watch import NullWatch
assert len(list(FileSource(Path(sys.argv[1]), threads=2).frames(threading.Event(), NullWatch()))) == 2
"""


def test_a_broken_hevc_stream_does_not_hang_with_threads() -> None:
    clip = Path(__file__).parents[1] / "data/frame-threads.mp4"
    subprocess.run([sys.executable, "-c", ENDLESS, str(clip)], check=True, timeout=20, cwd=Path(__file__).parents[2])


def test_pictures_are_gone_with_their_last_reference(tmp_path: Path) -> None:
    """PyAV's side data makes reference cycles, freed only by the garbage collector: 200 pictures of 4K are 2.4 GB."""
    clip = numbered(tmp_path / "clip.mp4", frames=30)
    gc.collect()
    gc.disable()
    before = _pictures()
    try:
        assert max(_pictures() for _ in FileSource(clip).frames(threading.Event(), RecordingWatch())) < before + 10
    finally:
        gc.enable()


def _pictures() -> int:
    # Not isinstance: torch, if another test has imported it, keeps objects that complain when they are asked for their class.
    return sum(type(one) is av.VideoFrame for one in gc.get_objects())
