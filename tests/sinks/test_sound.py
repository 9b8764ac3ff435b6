"""The sound of a file beside its annotated video: the same packets, in step with the pictures."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition

from pipelines.frame import StreamInfo
from pipelines.sinks.sound import first_picture_s
from pipelines.sinks.video import VideoFile, VideoOptions
from pipelines.sources.files.file import FileSource
from pipelines.watch import NullWatch
from tests.clips import numbered
from tests.sinks.feed import frame, numbers, packets, picture, play, replay, times

ROOT = Path(__file__).parents[2]


def remuxed(source: Path, path: Path, shift: dict[str, Fraction] | None = None, skip: dict[str, int] | None = None) -> Path:
    """The same packets in another container: each kind is later by `shift` seconds and lacks its first `skip` packets."""
    with av.open(str(source)) as old, av.open(str(path), "w") as new:
        streams = {s: new.add_stream_from_template(s, opaque=True) for s in old.streams}
        left = dict(skip or {})
        for packet in old.demux():
            kind = packet.stream.type
            left[kind] = left.get(kind, 0) - 1
            if packet.dts is None or packet.pts is None or left[kind] >= 0:
                continue
            ticks = round((shift or {}).get(kind, Fraction(0)) / packet.time_base)
            packet.pts, packet.dts, packet.stream = packet.pts + ticks, packet.dts + ticks, streams[packet.stream]
            new.mux(packet)
    return path


def recoded(source: Path, path: Path, codec: str) -> Path:
    """The same pictures, with the sound in another codec."""
    with av.open(str(source)) as old, av.open(str(path), "w") as new:
        video = new.add_stream_from_template(old.streams.video[0], opaque=True)
        sound = new.add_stream(codec, rate=48000, layout="mono")
        for packet in old.demux():
            if packet.stream.type == "video" and packet.dts is not None:
                packet.stream = video
                new.mux(packet)
            elif packet.stream.type == "audio":
                for piece in packet.decode():
                    piece.pts = None
                    new.mux(sound.encode(piece))
        new.mux(sound.encode(None))
    return path


def tone(path: Path, codec: str) -> Path:
    """Half a second of sound alone."""
    with av.open(str(path), "w") as container:
        sound = container.add_stream(codec, rate=48000, layout="stereo")
        assert isinstance(sound, av.AudioStream)
        sound.bit_rate = 64_000
        sound.codec_context.open()
        size = sound.codec_context.frame_size or 1024
        fitted = av.AudioResampler(sound.codec_context.format, "stereo", 48000)
        for k in range(24_000 // size):
            wave = np.sin(2 * np.pi * 440 / 48000 * (k * size + np.arange(size))) / 4
            piece = av.AudioFrame.from_ndarray(wave.astype(np.float32)[None], "fltp", "mono")
            piece.sample_rate, piece.pts = 48000, k * size
            for fit in fitted.resample(piece):
                container.mux(sound.encode(fit))
        container.mux(sound.encode(None))
    return path


def annotated(source: Path, path: Path, complete: bool = True) -> Path:
    sink = VideoFile(path)
    replay(sink, source)
    sink.close(complete)
    return path


def bare(payload: bytes) -> bytes:
    """An AAC packet without the header that it has in MPEG-TS."""
    return payload[7:] if payload[:2] == b"\xff\xf1" else payload


def assert_carried_over(source: Path, path: Path, tolerance_s: float) -> None:
    """Same packets, same distance to the first picture."""
    before, after = packets(source), packets(path)
    assert len(before) > 20
    assert [bare(payload) for _, payload in after] == [bare(payload) for _, payload in before]
    origin_s, first_s = times(source)[0], times(path)[0]
    for (old_s, _), (new_s, _) in zip(before, after, strict=True):
        assert abs(float((old_s - origin_s) - (new_s - first_s))) <= tolerance_s


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "watchline.sinks.sound"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2 s of pictures with B-frames, and an AAC tone that begins with the priming before time 0."""
    path = numbered(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=50, b_frames=2, sound=True)
    assert packets(path)[0][0] < 0
    return path


@pytest.mark.parametrize(
    ("source", "suffix"),
    [
        *((source, ".mp4") for source in ("clip.mp4", "clip.mkv", "clip.ts", "opus.mkv", "mp2.ts")),
        *(("clip.mp4", suffix) for suffix in (".mov", ".mkv", ".ts")),
        ("opus.mkv", ".mkv"),
        ("opus.mkv", ".ts"),
        ("mp2.ts", ".mov"),
        ("mp2.ts", ".ts"),
    ],
)
def test_packets_are_carried_over_bit_for_bit(tmp_path: Path, clip: Path, source: str, suffix: str) -> None:
    made = {"opus.mkv": "libopus", "mp2.ts": "mp2"}.get(source)
    given = recoded(clip, tmp_path / source, made) if made else remuxed(clip, tmp_path / source)
    path = annotated(given, tmp_path / f"o{suffix}")
    assert_carried_over(given, path, 0.0011 if ".mkv" in (suffix, given.suffix) else 0.0001)
    assert numbers(path) == list(range(50))
    assert suffix == ".ts" or times(path)[0] == 0


def test_the_same_sound_is_heard(tmp_path: Path, clip: Path) -> None:
    """Decoders skip the priming as before: sample for sample, at the same time."""

    def heard(path: Path) -> tuple[float, np.ndarray]:
        with av.open(str(path)) as container:
            pieces = list(container.decode(audio=0))
        return pieces[0].time or 0.0, np.concatenate([p.to_ndarray()[0] for p in pieces])

    begin, samples = heard(clip)
    for suffix in (".mp4", ".mov"):
        again, same = heard(annotated(clip, tmp_path / f"o{suffix}"))
        assert again == begin
        assert np.array_equal(same, samples)


@pytest.mark.parametrize("late", [Fraction(1, 2), Fraction(-1, 20)])
def test_sound_that_begins_elsewhere_stays_there(tmp_path: Path, clip: Path, late: Fraction) -> None:
    given = remuxed(clip, tmp_path / "late.ts", {"audio": late})
    assert_carried_over(given, annotated(given, tmp_path / "o.mp4"), 0.0001)


def test_sound_from_long_before_the_first_picture_is_left_out(tmp_path: Path, clip: Path) -> None:
    given = remuxed(clip, tmp_path / "early.ts", {"video": Fraction(1)})
    path = annotated(given, tmp_path / "o.mp4")
    before, after = packets(given), packets(path)
    assert -0.1 <= after[0][0] < 0
    assert times(path)[0] == 0
    tail = before[-len(after) :]
    assert [bare(payload) for _, payload in tail] == [payload for _, payload in after]
    assert float(tail[0][0] - times(given)[0]) == pytest.approx(float(after[0][0]), abs=1e-4)


def test_a_recording_cut_in_the_middle_counts_from_its_first_whole_picture(tmp_path: Path, clip: Path) -> None:
    given = remuxed(clip, tmp_path / "cut.ts", skip={"video": 5})
    first = times(given)[0]
    assert first_picture_s(str(given)) == first
    with av.open(str(given)) as container:
        stream = container.streams.video[0]
        assert stream.start_time is not None
        assert stream.start_time * stream.time_base < first
    path = annotated(given, tmp_path / "o.mp4")
    assert times(path)[0] == 0
    tail = packets(given)[-len(packets(path)) :]
    assert float(tail[0][0] - first) == pytest.approx(float(packets(path)[0][0]), abs=1e-4)


@pytest.mark.parametrize(("suffix", "default"), [(".mp4", True), (".mkv", True), (".mkv", False), (".ts", False)])
def test_of_several_videos_the_one_that_is_watched_counts(tmp_path: Path, clip: Path, suffix: str, default: bool) -> None:
    """All video streams are the default, or none is. The larger one counts; it begins 1 s after the sound and the other."""
    larger = numbered(tmp_path / "larger.mp4", frames=50, size=(128, 96))
    given = tmp_path / f"two{suffix}"
    with av.open(str(clip)) as one, av.open(str(larger)) as two, av.open(str(given), "w") as new:
        tracks = {s: new.add_stream_from_template(s, opaque=True) for s in (*one.streams, *two.streams)}
        for track in tracks.values():
            track.disposition = Disposition.default if default else Disposition(0)
        both = [p for p in one.demux() if p.size]
        for packet in two.demux():
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = (t + round(1 / packet.time_base) for t in (packet.pts, packet.dts))
                both.append(packet)
        for packet in sorted(both, key=lambda p: (p.dts or 0) * p.time_base):
            packet.stream = tracks[packet.stream]
            new.mux(packet)
    sink = VideoFile(tmp_path / "o.mp4")
    with closing(FileSource(given).frames(threading.Event(), NullWatch())) as captures:
        for number, capture in enumerate(captures):
            assert capture.picture.y.shape == (96, 128)
            sink.show(frame(number, capture.pts_s, capture.info), capture.picture)
    sink.close(True)
    with av.open(str(given)) as container:
        image = next(container.decode(container.streams.video[1]))
        assert image.pts is not None
        first_s = image.pts * image.time_base
    before, after = packets(given), packets(tmp_path / "o.mp4")
    assert -0.1 <= after[0][0] < 0
    assert float(before[-len(after)][0] - first_s) == pytest.approx(float(after[0][0]), abs=0.0011)


@pytest.mark.parametrize("complete", [True, False])
def test_only_a_complete_end_brings_the_rest(tmp_path: Path, clip: Path, complete: bool) -> None:
    sink = VideoFile(tmp_path / "o.mp4")
    play(sink, [Fraction(k, 25) for k in range(10)], StreamInfo(rate=Fraction(25), sound=str(clip)))
    sink.close(complete)
    after = packets(tmp_path / "o.mp4")
    assert [p for _, p in after] == [p for _, p in packets(clip)[: len(after)]]
    assert len(after) == len(packets(clip)) if complete else 0.36 < after[-1][0] < 0.4


def test_only_the_first_round_of_a_loop_has_sound(tmp_path: Path, clip: Path) -> None:
    sink, info = VideoFile(tmp_path / "o.mp4"), StreamInfo(rate=Fraction(25), sound=str(clip))
    for session in range(2):
        play(sink, [Fraction(k, 25) for k in range(50)], info, session, first=50 * session)
    sink.close(True)
    assert len(packets(tmp_path / "o.mp4")) == sum(1 for time_s, _ in packets(clip) if time_s < 2)
    assert times(tmp_path / "o.mp4") == [Fraction(k, 25) for k in range(100)]


def test_a_clock_that_starts_again_does_not_stop_the_sound(tmp_path: Path, clip: Path) -> None:
    once = remuxed(clip, tmp_path / "once.ts")
    twice = tmp_path / "twice.ts"
    twice.write_bytes(once.read_bytes() * 2)
    sink = VideoFile(tmp_path / "o.mp4")
    play(sink, [Fraction(k, 25) for k in range(100)], StreamInfo(rate=Fraction(25), sound=str(twice)))
    sink.close(True)
    after = [time_s for time_s, _ in packets(tmp_path / "o.mp4")]
    assert all(a < b for a, b in pairwise(after))
    assert 3.9 < after[-1] < 4.2


def test_an_outlier_does_not_hold_the_sound_back(tmp_path: Path, clip: Path) -> None:
    whole = remuxed(clip, tmp_path / "a.ts").read_bytes()
    far = remuxed(clip, tmp_path / "b.ts", {"audio": Fraction(3600), "video": Fraction(3600)}).read_bytes()
    given = tmp_path / "outlier.ts"
    given.write_bytes(whole + far)
    sink = VideoFile(tmp_path / "o.mp4")
    play(sink, [Fraction(k, 25) for k in range(100)], StreamInfo(rate=Fraction(25), sound=str(given)))
    sink.close(True)
    assert 3.9 < packets(tmp_path / "o.mp4")[-1][0] < 4.2


def beside(sound: Path, path: Path) -> Path:
    """A video of half a second with this sound."""
    sink = VideoFile(path)
    play(sink, [k / 25 for k in range(12)], StreamInfo(sound=str(sound)))
    sink.close(True)
    assert numbers(path) == list(range(12))
    return path


def samples(path: Path) -> int | None:
    """The number of sound samples in a file; None without sound."""
    with av.open(str(path)) as container:
        return sum(f.samples for f in container.decode(audio=0)) if container.streams.audio else None


@pytest.mark.parametrize(
    ("given", "suffix", "why"),
    [
        ("libopus.mkv", ".mov", "opus cannot be copied into .mov; .mp4 or .mkv or .ts would hold it"),
        ("pcm_s16le.mkv", ".ts", "pcm_s16le cannot be copied into .ts; .mp4 or .mov or .mkv would hold it"),
        ("pcm_mulaw.avi", ".mkv", "pcm_mulaw cannot be copied into .mkv; .mov would hold it"),
        ("wmav2.asf", ".mkv", "wmav2 cannot be copied into .mkv, nor into any other video that can be written"),
    ],
)
def test_a_codec_that_the_container_refuses_is_left_out(
    tmp_path: Path, given: str, suffix: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sound = tone(tmp_path / given, given.partition(".")[0])
    assert samples(beside(sound, tmp_path / f"o{suffix}")) is None
    assert said(caplog) == [f"the sound of {sound} is left out: {why}"]


CODECS = {
    ".mkv": ("pcm_s16le", "pcm_s24be", "pcm_f32le", "pcm_u8", "ac3", "alac", "flac", "libopus", "mp2", "mp3", "tta"),
    ".mov": ("pcm_s16be", "pcm_f64le", "pcm_alaw", "adpcm_ima_qt", "aac", "eac3"),
    ".avi": ("pcm_s16le", "pcm_mulaw", "adpcm_ms", "adpcm_ima_wav", "mp3", "ac3"),
    ".asf": ("pcm_s16le", "flac", "wmav1", "aac"),
    ".nut": ("pcm_s16be", "pcm_f32be", "eac3"),
    ".wav": ("pcm_s32le", "adpcm_yamaha"),
}
"""Codecs by the kind of source; each is copied into every container that can be written. Sources describe one codec in
different ways: without the order of the channels, without a header, with times in milliseconds."""


@pytest.mark.parametrize(("source", "codec"), [(s, c) for s, codecs in CODECS.items() for c in codecs])
def test_a_video_plays_whatever_its_sound_was(
    tmp_path: Path, source: str, codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The file has the sound and plays it, or the sound is left out and a warning says so."""
    caplog.set_level(logging.WARNING)
    given = tone(tmp_path / f"given{source}", codec)
    for suffix in (".mp4", ".mov", ".mkv", ".ts"):
        caplog.clear()
        kept = samples(beside(given, tmp_path / f"o{suffix}"))
        # Priming and padding are not counted if the file marks them.
        assert len(said(caplog)) == 1 if kept is None else kept == pytest.approx(samples(given), abs=2 * 1536)


@pytest.mark.parametrize("given", ["missing.mp4", "text.mp4"])
def test_a_sound_that_cannot_be_read_is_left_out(tmp_path: Path, given: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "text.mp4").write_text("no video")
    sink = VideoFile(tmp_path / "o.mp4")
    play(sink, [0, 0.04], StreamInfo(sound=str(tmp_path / given)))
    sink.close(True)
    assert numbers(tmp_path / "o.mp4") == [0, 1]
    assert len(said(caplog)) == 1


@pytest.mark.parametrize("name", ["file:x.mp4", "2026-11-30T12:30:00.mp4", "n%03d.mp4", "-dash.mp4"])
def test_odd_names_are_read_exactly(tmp_path: Path, clip: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read as a protocol's name, nor as the name of the file beside it, which has another sound."""
    monkeypatch.chdir(tmp_path)
    remuxed(clip, Path("x.mp4"), skip={"audio": 9})
    Path(name).write_bytes(clip.read_bytes())
    path = annotated(Path(name), Path("o.mp4"))
    assert [p for _, p in packets(path)] == [p for _, p in packets(clip)]


def test_a_file_without_sound_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    path = annotated(numbered(tmp_path / "mute.mp4", frames=5), tmp_path / "o.mp4")
    assert (numbers(path), packets(path), said(caplog)) == (list(range(5)), [], [])


def test_a_camera_has_no_sound(tmp_path: Path, clip: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4", VideoOptions(live=True))
    play(sink, [0, 0.04], StreamInfo(sound=str(clip)))
    sink.close(True)
    assert packets(tmp_path / "o.mp4") == []


def test_the_source_is_let_go(tmp_path: Path, clip: Path) -> None:
    sink = VideoFile(tmp_path / "o.mp4")
    sink.show(frame(0, 0, StreamInfo(sound=str(clip))), picture(0))
    sink.close(True)
    held = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert str(clip) not in held
    assert str(tmp_path / "o.mp4") not in held


KILLED = """
import os, signal, sys
from fractions import Fraction
from pathlib import Path
from pipelines.frame import StreamInfo
from pipelines.sinks.video import VideoFile
from tests.sinks.feed import play
info = StreamInfo(Fraction(1, 12800), Fraction(25), sound=sys.argv[1])
play(VideoFile(Path(sys.argv[2])), [Fraction(k, 25) for k in range(int(sys.argv[3]))], info)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(sound: Path, path: Path, frames: int) -> Path:
    """The file of a process that was killed after this many frames."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, str(sound), str(path), str(frames)]
    assert subprocess.run(command, cwd=ROOT, env=environment, timeout=60, check=False).returncode == -signal.SIGKILL
    return path


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_sigkill_after_the_end_of_the_sound_costs_two_seconds(tmp_path: Path, clip: Path, suffix: str) -> None:
    """The muxer must not hold back pictures and wait for a sound that has ended (here after 2 of 4 s)."""
    path = killed(clip, tmp_path / f"o{suffix}", 100)
    assert len(numbers(path)) >= 50
    after = packets(path)
    assert [p for _, p in after] == [p for _, p in packets(clip)[: len(after)]]
    assert len(after) >= len(packets(clip)) - 2


def test_sigkill_before_the_first_sound_costs_two_seconds(tmp_path: Path, clip: Path) -> None:
    """mp4 is the exception: its header waits for the first sound."""
    late = remuxed(clip, tmp_path / "late.ts", {"audio": Fraction(60)})
    assert len(numbers(killed(late, tmp_path / "o.mkv", 100))) >= 50


def test_a_late_sound_comes_at_its_time(tmp_path: Path, clip: Path) -> None:
    given = remuxed(clip, tmp_path / "late.ts", {"audio": Fraction(3, 2)})
    assert_carried_over(given, annotated(given, tmp_path / "o.mp4"), 0.0001)
    assert times(tmp_path / "o.mp4") == [Fraction(k, 25) for k in range(50)]
