"""Faults in decoding: pictures with lost packets, batches, and many decoders at once."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest

from app import build
from pipelines.frame import Plane
from pipelines.sources.files.file import FileSource
from tests.clips import level, numbered, write
from tests.command import PROBE, watchline
from tests.servers import Play, RtspServer
from tests.sources.conftest import ffmpeg
from tests.sources.play import Player, RecordingWatch, camera, everything
from tests.sources.rtsp.test_native import clean, which
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(60)]

# C08. A picture that depends on a lost one is not labelled.

CELL = 188
"""Octets of a transport stream's packet."""
GOP = 15
X264 = ("-c:v", "libx264", "-preset", "veryfast", "-x264-params")
X265 = ("-c:v", "libx265", "-preset", "ultrafast", "-x265-params")
PYRAMID = "keyint=15:min-keyint=15:scenecut=0:bframes=3:b-pyramid=normal:ref=4"
FAST = "log-level=none:keyint=15:min-keyint=15:scenecut=0"
ENCODERS: dict[str, tuple[str, ...]] = {
    "h264": (*X264, "keyint=15:min-keyint=15:scenecut=0:bframes=0"),
    "h264 pyramid": (*X264, PYRAMID),
    "h264 open": (*X264, f"{PYRAMID}:open-gop=1"),
    "h264 interlaced": (*X264, f"{PYRAMID}:tff=1"),
    "h264 slices": (*X264, "keyint=15:min-keyint=15:scenecut=0:slices=4"),
    "h265": (*X265, f"{FAST}:bframes=0"),
    "h265 open": (*X265, f"{FAST}:bframes=4:b-pyramid=1"),
    "h265 closed": (*X265, f"{FAST}:bframes=4:b-pyramid=1:open-gop=0"),
}
LOST = (3, 7, 8, GOP, GOP + 1, 2 * GOP)
"""Packets, in decoding order. Each of those after 8 is a key picture or the one behind it."""


@dataclass(frozen=True)
class Whole:
    """An undamaged clip: its pictures, and for each packet which of them it holds and whether it is a key."""

    path: Path
    pictures: list[Plane]
    shown: list[int]
    keys: list[bool]

    @staticmethod
    def of(path: Path) -> Whole:
        captures = everything(FileSource(path))
        assert not any(c.corrupt for c in captures)
        with av.open(str(path)) as container:
            packets = [p for p in container.demux(video=0) if p.size]
        order = sorted(p.pts or 0 for p in packets)
        shown = [order.index(p.pts or 0) for p in packets]
        return Whole(path, [c.picture.y for c in captures], shown, [p.is_keyframe for p in packets])

    def good_without(self, lost: int) -> set[int]:
        """Pictures that have nothing to do with packet `lost`: decoded before it, or shown from the next key picture on."""
        after = next((k for k in range(lost + 1, len(self.keys)) if self.keys[k]), None)
        good = set(self.shown[:lost])
        return good | {k for k in self.shown[lost + 1 :] if after is not None and k >= self.shown[after]}


def _without(clip: Path, lost: int, target: Path) -> Path:
    """A copy without one packet, so that the container shows no gap."""
    ffmpeg("-i", clip, "-c", "copy", "-copyts", "-bsf:v", f"noise=drop='eq(n,{lost})'", target)
    return target


@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, "mkv") for name in ENCODERS), ("h264 pyramid", "ts"), ("h265 open", "ts")]
)
def test_c08_a_packet_that_is_missing_whole_spoils_what_leans_on_it_and_nothing_else(
    name: str, suffix: str, tmp_path: Path
) -> None:
    clip = tmp_path / f"clip.{suffix}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=2", *ENCODERS[name], clip)
    whole = Whole.of(clip)
    for lost in LOST:
        captures = everything(FileSource(_without(clip, lost, tmp_path / f"{lost}.{suffix}"), threads=2))
        trusted = which(clean(captures), whole.pictures)
        assert -1 not in trusted, f"without packet {lost} a smeared picture was trusted, at {trusted.index(-1)}"
        assert set(trusted) >= whole.good_without(lost), f"without packet {lost} good pictures were dropped"


def test_c08_the_recipe(tmp_path: Path) -> None:
    """Three packets of 100 are missing; the counters of the transport stream show nothing of it."""
    base, loss, report = tmp_path / "base.mp4", tmp_path / "loss.ts", tmp_path / "report.json"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=4", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", 25, base)
    ffmpeg("-i", base, "-c", "copy", "-bsf:v", "noise=drop='eq(mod(n,37),5)'", "-f", "mpegts", loss)
    done = watchline("run", str(loss), *PROBE, "--jsonl", "-", "--report", str(report))
    assert done.code == 0
    (stream,) = json.loads(report.read_text())["streams"].values()
    assert stream["captured"] == len(done.lines) == 97
    assert stream["dropped"]["corrupt"] == 97 - stream["shown"] > 0
    assert f"{stream['dropped']['corrupt']} dropped (corrupt)" in done.err
    assert len(done.err.splitlines()) < 10
    whole, captures = Whole.of(base), everything(FileSource(loss))
    assert [c.corrupt for c in captures] == [line["status"] != "ok" for line in done.lines]
    trusted = which(clean(captures), whole.pictures)
    assert -1 not in trusted
    assert set(trusted) >= set.intersection(*(whole.good_without(lost) for lost in (5, 42, 79)))


@pytest.mark.parametrize("every", [97, 150])
def test_c08_a_transport_stream_that_lost_packets_of_the_network(every: int, tmp_path: Path) -> None:
    """As a network loses them: the continuity counter shows it."""
    clip, loss = tmp_path / "whole.ts", tmp_path / "loss.ts"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x240:r=25:d=4", *ENCODERS["h264 pyramid"], clip)
    data = clip.read_bytes()
    cells = [data[k : k + CELL] for k in range(0, len(data), CELL)]
    loss.write_bytes(b"".join(cell for k, cell in enumerate(cells) if k % every != every - 1))
    trusted = clean(everything(FileSource(loss)))
    assert 0 < len(trusted) < 100
    assert -1 not in which(trusted, Whole.of(clip).pictures)


@pytest.mark.parametrize("b_frames", [0, 2])
def test_c08_intra_refresh_is_trusted_again_when_a_whole_wave_has_gone_over_the_picture(b_frames: int, tmp_path: Path) -> None:
    """Its packets are flagged as key pictures where a wave begins."""
    clip = tmp_path / "clip.mkv"
    refresh = f"intra-refresh=1:keyint={GOP}:bframes={b_frames}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=4", *X264, refresh, clip)
    whole = Whole.of(clip)
    for lost in (20, 24, 31):
        captures = everything(FileSource(_without(clip, lost, tmp_path / f"{lost}.mkv")))
        trusted = which(clean(captures), whole.pictures)
        assert -1 not in trusted
        assert set(trusted) >= set(whole.shown[:lost]) | set(range(lost + 3 * GOP, 100))


@pytest.mark.parametrize("reader", ["native udp", "ffmpeg udp"])
def test_c08_a_camera_that_loses_packets(reader: str, tmp_path: Path) -> None:
    need("gst-rtsp-server")
    noise = np.random.default_rng(4).integers(40, 220, (50, 96, 128), np.uint8)
    grey = np.full((48, 64), 128, np.uint8)
    pictures = ((y, grey, grey) for y in noise)
    clip = write(tmp_path / "noise.mp4", pictures, size=(128, 96), rate=50, gop=10, options={"crf": "30"})
    with (
        RtspServer({"cam": Play(clip, sound=False, drop=0.01)}) as server,
        Player(camera(server.url("cam"), reader)) as player,
    ):
        player.until(150)
    captures = player.captures
    assert player.error is None
    assert any(c.corrupt for c in captures)
    found = which(clean(captures), Whole.of(clip).pictures)
    assert len(found) > 20
    assert -1 not in found


# No false alarms: whole files of every kind, and legal ones with holes in their times.

SOURCE = ("-f", "lavfi", "-i", "testsrc2=s=160x120:r=30:d=2")
HOLES = ("-vf", "select='if(lt(n,30),1,not(mod(n,5)))'", "-fps_mode", "vfr")
WHOLE: dict[str, Sequence[Sequence[str]]] = {
    "variable.mp4": [[*SOURCE, *HOLES, *X264, PYRAMID]],
    "variable.mkv": [[*SOURCE, *HOLES, *X265, FAST]],
    "variable.ts": [[*SOURCE, *HOLES, *X264, PYRAMID]],
    "variable.avi": [[*SOURCE, *HOLES, "-c:v", "mpeg4"]],
    "variable.webm": [[*SOURCE, *HOLES, "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]],
    "edit.mp4": [[*SOURCE, *X264, PYRAMID, "a.mp4"], ["-ss", "1.1", "-i", "a.mp4", "-c", "copy"]],
    "negative.mp4": [[*SOURCE, *X264, PYRAMID, "a.mp4"], ["-itsoffset", "-0.5", "-i", "a.mp4", "-c", "copy"]],
    "open.mp4": [[*SOURCE, *X265, f"{FAST}:bframes=4", "a.mp4"], ["-ss", "1.1", "-i", "a.mp4", "-c", "copy"]],
    "fragments.mp4": [[*SOURCE, *X264, PYRAMID, "-movflags", "frag_keyframe+empty_moov"]],
    "bare.h264": [[*SOURCE, *X264, PYRAMID]],
    "bare.hevc": [[*SOURCE, *X265, f"{FAST}:bframes=4"]],
    "looped.ts": [[*SOURCE, *X264, PYRAMID, "a.mp4"], ["-stream_loop", "2", "-i", "a.mp4", "-c", "copy"]],
    "looped.mkv": [[*SOURCE, *X265, FAST, "a.mp4"], ["-stream_loop", "2", "-i", "a.mp4", "-c", "copy"]],
    "flash.flv": [[*SOURCE, *X264, PYRAMID]],
    "endless.mp4": [[*SOURCE, *X264, "keyint=infinite:bframes=0"]],
    "refresh.ts": [[*SOURCE, *X264, "intra-refresh=1:keyint=15"]],
    "layers.mp4": [[*SOURCE, *X265, f"{FAST}:temporal-layers=1:bframes=3:b-pyramid=1"]],
    "interlaced.mpg": [[*SOURCE, "-c:v", "mpeg2video", "-flags", "+ilme+ildct", "-bf", "2"]],
    "a.avi": [[*SOURCE, "-c:v", "mpeg4", "-bf", "2"]],
    "a.webm": [[*SOURCE, "-c:v", "libvpx", "-deadline", "realtime"]],
    "a.mkv": [[*SOURCE, "-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime"]],
}


@pytest.mark.parametrize("name", WHOLE)
def test_c08_nothing_of_a_whole_file_counts_as_corrupt(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for step in WHOLE[name]:
        ffmpeg(*step, *([] if step is not WHOLE[name][-1] else [name]))
    reports = RecordingWatch()
    captures = everything(FileSource(tmp_path / name), reports)
    assert len(captures) >= 15
    assert [k for k, c in enumerate(captures) if c.corrupt] == []
    assert reports.decode_errors == []


# C44 (d). Files fill their batches.


@pytest.mark.parametrize("flags", [(), ("--max-wait-ms", "10"), ("--max-wait-ms", "0")])
@pytest.mark.parametrize("rest", [4, 0, 31])
def test_c44_a_file_runs_in_full_batches_and_what_is_left(rest: int, flags: tuple[str, ...], tmp_path: Path) -> None:
    frames = 96 + rest
    clip = numbered(tmp_path / "num.mp4", frames=frames, step=1)
    report = tmp_path / "report.json"
    cost = ("--probe-ms-per-batch", "10", "--probe-ms-per-frame", "0.5", "--max-batch", "32")
    done = watchline("run", str(clip), *PROBE, *cost, *flags, "--jsonl", "-", "--report", str(report))
    assert done.code == 0
    assert [(k["frame"], k["labels"][0]["id"]) for k in done.lines] == [(n, level(n, 1)) for n in range(frames)]
    last = {str(rest): 1} if rest else {}
    assert json.loads(report.read_text())["batch_sizes"] == {"32": 3} | last
    sizes = [k["batch"]["size"] for k in done.lines]
    assert sizes == [32] * 96 + [rest] * rest


# C46. Many decoders with much to complain about.

LOOPS = [3, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clean.ts, loss.ts with missing packets, corrupt.ts with broken ones."""
    folder = tmp_path_factory.mktemp("noisy")
    clean = folder / "clean.ts"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=2", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-g", 25, clean)
    ffmpeg("-i", clean, "-c", "copy", "-bsf:v", "noise=drop='eq(mod(n,17),5)'", folder / "loss.ts")
    ffmpeg("-i", clean, "-c", "copy", "-bsf:v", "noise=amount='20*eq(mod(n,7),3)'", folder / "corrupt.ts")
    return folder


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("loops", LOOPS)
def test_c46_sixteen_noisy_streams_at_once_end_every_time_and_cost_what_clean_ones_cost(
    loops: int, threads: int, noisy: Path
) -> None:
    command = [sys.executable, "-m", "tests.cases.many_decoders", str(noisy), str(loops), str(threads)]
    limit_s = 50 * max(loops // 12, 1)
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=limit_s)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["forked"] == 0
    assert found["captures"]["clean"] == 16 * loops * 50
    assert found["captures"]["loss"] == 16 * loops * 47
    clean_s = found["cpu_s"].pop("clean")
    assert max(found["cpu_s"].values()) <= 1.5 * clean_s, found
    assert found["most_threads"] <= 16 * (1 + (threads if threads > 1 else 0))


@pytest.mark.parametrize(("files", "cores"), [(1, 8), (16, 8), (16, 64)])
def test_c46_decoder_threads_are_no_more_than_the_cores(
    files: int, cores: int, noisy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cores", lambda: cores)
    clips = [str(shutil.copy(noisy / "loss.ts", tmp_path / f"{k}.ts")) for k in range(files)]
    with _decoders() as most:
        done = watchline("run", *clips, *PROBE, "--jsonl", "-")
    assert done.code == 0
    assert len(done.lines) == 47 * files
    assert most[0] <= cores
    assert (most[0] > 0) is (cores // 2 > files)


@contextlib.contextmanager
def _decoders() -> Iterator[list[int]]:
    """The most threads of FFmpeg's decoders that this process had at once."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.002):
            most[0] = max(most[0], sum(_thread_name(task).startswith("av:") for task in Path("/proc/self/task").iterdir()))

    looking = threading.Thread(target=look, name="looking")
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()


def _thread_name(task: Path) -> str:
    with contextlib.suppress(OSError):
        return (task / "comm").read_text()
    return ""
