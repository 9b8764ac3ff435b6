"""The native reader against real servers: GStreamer's, and VLC."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from pipelines.errors import SourceError
from pipelines.sources.rtp.packet import RtpPacket, parse
from pipelines.sources.rtsp import native_reader
from tests.clips import numbered, write
from tests.servers import Play, RtspServer
from tests.servers.vlc import Vlc
from tests.sources.play import Player, camera, everything, numbers
from tests.sources.rtsp.test_native import clean, which
from tests.system import need

pytestmark = pytest.mark.timeout(60)
HEVC = {"preset": "ultrafast", "x265-params": "log-level=none:keyint=25:min-keyint=25"}
CLIPS = ("h264", "h264 b-frames", "h265", "h265 b-frames")
NUMBERS = 110
"""Of the pictures of `tests.clips`, before they begin again."""
RATE = 50


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbered pictures, 40 s of them, in both codecs; lossy.mp4: 100 pictures of noise, several packets each.
    sound.mp4: with a tone."""
    folder = tmp_path_factory.mktemp("cameras")
    many = 40 * RATE // NUMBERS * NUMBERS
    for name in CLIPS:
        codec, _, b_frames = name.partition(" ")
        encoder = {"codec": "libx265", "options": HEVC} if codec == "h265" else {"codec": "libx264", "options": {}}
        if codec == "h265" and not b_frames:
            encoder["options"] = {**HEVC, "x265-params": f"{HEVC['x265-params']}:bframes=0"}
        numbered(folder / f"{name}.mkv", frames=many, rate=RATE, b_frames=2 if b_frames else 0, **encoder)  # type: ignore[arg-type]
    numbered(folder / "sound.mp4", frames=NUMBERS, sound=True)
    noise = np.random.default_rng(4).integers(40, 220, (100, 96, 128), np.uint8)
    grey = np.full((48, 64), 128, np.uint8)
    write(folder / "lossy.mp4", ((y, grey, grey) for y in noise), size=(128, 96), rate=RATE, gop=10, options={"crf": "30"})
    return folder


@pytest.fixture(scope="module")
def server(clips: Path) -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    mounts = {name.replace(" ", "-"): Play(clips / f"{name}.mkv", sound=False) for name in CLIPS}
    with RtspServer(mounts) as server:
        yield server


def _one_after_the_other(player: Player, count: int) -> bool:
    """From the first key picture on every picture once, in order, each a period after the one before; whether that is the
    first picture of all. Only the first `count`: at the very end the one that B-frames lean on comes, and they do not."""
    captures = player.captures[:count]
    first = next(k for k, c in enumerate(captures) if not c.corrupt)
    good = captures[first:]
    found = numbers(good)
    assert not any(c.corrupt for c in good)
    assert found == [(found[0] + k) % NUMBERS for k in range(len(good))]
    steps = [(b.pts_s or 0) - (a.pts_s or 0) for a, b in pairwise(good)]
    assert steps == pytest.approx([1 / RATE] * len(steps), abs=1e-4)
    assert player.reports.counts.lost == player.reports.counts.duplicated == 0
    assert player.reports.said == {}
    assert player.reports.decode_errors == []
    return first == 0


@pytest.mark.parametrize("reader", ["native tcp", "native udp"])
@pytest.mark.parametrize("name", CLIPS)
def test_every_picture_of_a_camera(server: RtspServer, name: str, reader: str) -> None:
    with Player(camera(server.url(name.replace(" ", "-")), reader)) as player:
        player.until(40)
    assert player.error is None
    assert _one_after_the_other(player, 40)


@pytest.mark.parametrize("name", ["h264 b-frames", "h265"])
def test_every_picture_of_another_server(clips: Path, name: str) -> None:
    need("vlc")
    with Vlc(clips / f"{name}.mkv") as server, Player(camera(server.url, "native udp")) as player:
        player.until(70)
        server.kill()
        player.until_ended()
    assert "hung up" in str(player.error)
    _one_after_the_other(player, 70)


def test_a_server_that_sends_over_udp_alone(clips: Path) -> None:
    need("vlc")
    with Vlc(clips / "h264.mkv") as server, pytest.raises(SourceError, match="`rtsp_transport` udp") as caught:
        everything(camera(server.url, "native tcp"))
    assert caught.value.permanent


def test_two_of_a_hundred_packets_lost(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture that counts as clean is a smeared one, and every lost packet is counted."""
    came: list[int] = []

    def listening(data: bytes, arrived_s: float, payload_type: int | None = None) -> RtpPacket | None:
        packet = parse(data, arrived_s, payload_type)
        if packet is not None:
            came.append(packet.sequence)
        return packet

    monkeypatch.setattr(native_reader, "parse", listening)
    need("gst-rtsp-server")
    lossy = Play(clips / "lossy.mp4", sound=False, drop=0.02)
    with RtspServer({"cam": lossy}) as server, Player(camera(server.url("cam"), "native udp")) as player:
        player.until(150)
        server.kill()
        player.until_ended()
    with av.open(str(clips / "lossy.mp4")) as container:
        truth = [frame.to_ndarray(format="yuv420p")[: frame.height] for frame in container.decode(video=0)]
    found = which(clean(player.captures), truth)
    assert -1 not in found
    turns = np.cumsum([0] + [b <= a for a, b in pairwise(found)])
    in_order = [100 * turn + k for turn, k in zip(turns, found, strict=True)]
    assert turns[-1] <= 2
    assert 30 < len(in_order) < len(player.captures)
    span = (came[-1] - came[0]) % 65536 + 1
    assert player.reports.counts.received == len(came)
    assert player.reports.counts.lost == span - len(came) > 10
    assert player.reports.counts.reordered == player.reports.counts.duplicated == 0


def test_a_shared_camera_with_sound(clips: Path) -> None:
    """GStreamer's server now and then sends nothing, for good, to a client that sets up one of two tracks."""
    need("gst-rtsp-server")
    with RtspServer({"cam": Play(clips / "sound.mp4")}) as server:
        for _ in range(2):
            with Player(camera(server.url("cam"))) as player:
                player.until(3)
            assert player.error is None
            assert set(player.reports.said) <= {"all tracks"}
            assert numbers(player.captures[:3]) == [0, 1, 2]
