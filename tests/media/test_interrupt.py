"""A stop ends every blocking call of a source; other threads still get the true time from FFmpeg's clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import av.container.core as core
import pytest

from pipelines.errors import SourceError
from pipelines.media import patches
from pipelines.media.interrupt import FAR_S, interruptible
from pipelines.sources.files.file import FileSource
from pipelines.sources.network import NetworkSource
from pipelines.sources.opening import Timeouts
from pipelines.sources.source import Source
from pipelines.sources.wrappers.pace import Realtime
from pipelines.sources.wrappers.reconnect import Reconnect
from tests.clips import numbered
from tests.servers import Play, RtspServer
from tests.servers.peers import FullBacklog, SilentPeer, StoppingHttp
from tests.sources.conftest import ffmpeg
from tests.sources.play import READERS, SOON_S, Player, Transmitter, camera, descriptors, everything
from tests.system import need

pytestmark = pytest.mark.timeout(60)
LONG = Timeouts(15, 15)
"""Seconds, far longer than a stop may take."""

OPEN: dict[str, Callable[[str], Source]] = {
    "rtsp native": lambda url: camera(url, "native tcp", LONG),
    "rtsp ffmpeg": lambda url: camera(url, "ffmpeg tcp", LONG),
    "rtsp ffmpeg udp": lambda url: camera(url, "ffmpeg udp", LONG),
    "http": lambda url: NetworkSource(url, live=True, limits=LONG),
    "tcp": lambda url: NetworkSource(url, live=True, limits=LONG),
}


class TestClock:
    """`av.container.core.time` is a private name: these tests fail if a PyAV no longer reads it."""

    @pytest.fixture(autouse=True)
    def _patched(self) -> None:
        patches.install()

    @staticmethod
    def _now() -> float:
        return float(core.time.monotonic())  # type: ignore[attr-defined]

    def test_true_without_a_stop_far_ahead_and_ever_farther_with_one(self) -> None:
        stop = threading.Event()
        with interruptible(stop):
            assert abs(self._now() - time.monotonic()) < 1
            stop.set()
            first, second = self._now(), self._now()
            assert first - time.monotonic() > FAR_S / 2
            assert second - first > FAR_S / 2, "a call that begins after the stop would never end"
        assert abs(self._now() - time.monotonic()) < 1

    def test_true_for_other_threads(self) -> None:
        stop = threading.Event()
        stop.set()
        seen: list[float] = []
        with interruptible(stop):
            other = threading.Thread(target=lambda: seen.append(self._now() - time.monotonic()))
            other.start()
            other.join()
        assert abs(seen[0]) < 1

    def test_an_inner_one_gives_way_to_the_outer(self) -> None:
        outer, inner = threading.Event(), threading.Event()
        inner.set()
        with interruptible(outer):
            with interruptible(inner):
                assert self._now() - time.monotonic() > FAR_S / 2
            assert abs(self._now() - time.monotonic()) < 1
            outer.set()
            assert self._now() - time.monotonic() > FAR_S / 2

    def test_pyav_asks_it(self, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []

        class Asked:
            @staticmethod
            def monotonic() -> float:
                asked.append(threading.get_ident())
                return time.monotonic()

        monkeypatch.setattr(core, "time", Asked)
        with av.open(str(clips / "num.mp4"), timeout=(1, 1)) as container:
            next(container.decode(video=0))
        assert set(asked) == {threading.get_ident()}


class TestOpening:
    @pytest.mark.parametrize("kind", OPEN)
    def test_a_peer_that_never_answers(self, kind: str) -> None:
        with SilentPeer() as peer, Player(OPEN[kind](peer.url(kind.split()[0]))) as player:
            assert peer.accepted.wait(10)
            assert player.stop() < SOON_S

    @pytest.mark.parametrize("kind", ["rtsp native", "rtsp ffmpeg"])
    def test_a_connection_that_is_not_even_made(self, kind: str) -> None:
        with FullBacklog() as peer, Player(OPEN[kind](f"rtsp://127.0.0.1:{peer.port}/cam")) as player:
            assert player.stop() < SOON_S

    @pytest.mark.parametrize("kind", OPEN)
    def test_a_stop_that_came_before(self, kind: str) -> None:
        with SilentPeer() as peer, Player(OPEN[kind](peer.url(kind.split()[0])), stopped=True) as player:
            player.until_ended(SOON_S)

    @pytest.mark.parametrize("kind", OPEN)
    def test_a_time_limit_without_a_stop(self, kind: str) -> None:
        limits = Timeouts(0.4, 0.4)
        with SilentPeer() as peer:
            url = peer.url(kind.split()[0])
            reader = f"{kind.split()[1]} tcp" if "rtsp" in kind else ""
            source = camera(url, reader, limits) if reader else NetworkSource(url, live=True, limits=limits)
            began_s = time.monotonic()
            with pytest.raises(SourceError, match=r"nothing came within 0.4 s \(the open timeout\)") as caught:
                everything(source)
            assert 0.3 < time.monotonic() - began_s < 1.4
        assert not caught.value.permanent

    def test_a_pipe_that_nobody_writes(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.ts")
        before = descriptors()
        with Player(FileSource(tmp_path / "pipe.ts", limits=LONG)) as player:
            assert player.stop() < SOON_S
        assert descriptors() == before

    def test_the_pause_before_the_next_try(self) -> None:
        with Player(Reconnect(lambda: camera("rtsp://127.0.0.1:1/cam"), chance=lambda: 0.0)) as player:
            player.reports.until_interrupted(2)
            assert player.stop() < SOON_S
        assert player.error is None


class TestReading:
    def test_http_that_stalls(self, clips: Path) -> None:
        clip = numbered(clips / "stall.ts", frames=100, size=(320, 240))
        with StoppingHttp(clip, clip.stat().st_size * 3 // 4) as peer:
            before = descriptors()
            with Player(NetworkSource(peer.url, live=False, limits=LONG)) as player:
                player.until(10)
                assert peer.stalled.wait(10)
                assert player.stop() < SOON_S
            assert player.error is None
            assert descriptors() <= before + 1  # the peer still has its end

    def test_http_that_stalls_is_given_up_after_the_limit(self, clips: Path) -> None:
        clip = numbered(clips / "stall2.ts", frames=100, size=(320, 240))
        with StoppingHttp(clip, clip.stat().st_size * 3 // 4) as peer:
            with pytest.raises(SourceError, match=r"nothing came within 0.5 s \(the read timeout\)") as caught:
                everything(NetworkSource(peer.url, live=True, limits=Timeouts(5, 0.5)))
            assert not caught.value.permanent

    def test_the_wait_for_a_frame_that_is_due_later(self, tmp_path: Path) -> None:
        clip = numbered(tmp_path / "slow.mp4", frames=3, rate=Fraction(1, 30))
        before = descriptors()
        with Player(Realtime(FileSource(clip))) as player:
            player.until(1)
            assert player.stop() < SOON_S
            assert descriptors() == before
        assert player.error is None

    def test_a_pipe_whose_writer_sends_no_more(self, clips: Path, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe.ts"
        os.mkfifo(pipe)
        data = numbered(tmp_path / "clip.ts", frames=50, size=(320, 240)).read_bytes()
        with Player(FileSource(pipe, limits=LONG)) as player, pipe.open("wb") as writer:
            writer.write(data)
            writer.flush()
            player.until(10)
            assert player.stop() < SOON_S
        assert player.error is None

    def test_a_pipe_ends_with_its_writer(self, clips: Path, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe.ts"
        os.mkfifo(pipe)
        with Player(FileSource(pipe, limits=LONG)) as player:
            pipe.write_bytes(numbered(tmp_path / "clip.ts", frames=50).read_bytes())
            player.until_ended(2)
        assert player.error is None
        assert len(player.captures) == 50


class TestSoundOnly:
    """A camera that only sends sound any more is lost, although its packets keep arriving."""

    def test_is_given_up_after_the_limit(self, clips: Path) -> None:
        clip = clips / "sound.mkv"
        ffmpeg(
            "-t",
            1.2,
            "-i",
            clips / "num.mp4",
            "-f",
            "lavfi",
            "-i",
            "sine=d=30",
            "-map",
            "0:v",
            "-map",
            "1:a",
            "-c:v",
            "copy",
            "-c:a",
            "aac",
            clip,
        )
        limits = Timeouts(5, 0.8)
        at_once = ("-map", "0", "-max_interleave_delta", "1")
        with Transmitter(clip, *at_once) as camera, Player(NetworkSource(camera.url, live=True, limits=limits)) as player:
            player.until_ended(8)
        assert len(player.captures) > 0
        assert isinstance(player.error, SourceError)
        assert "no picture for 0.8 s" in str(player.error)


class TestFrozenCamera:
    @pytest.fixture
    def server(self, clips: Path) -> Iterator[RtspServer]:
        need("gst-rtsp-server")
        with RtspServer({"cam": Play(clips / "num.mp4", sound=False)}) as server:
            yield server

    @pytest.mark.parametrize("reader", READERS)
    def test_a_stop_ends_the_read(self, server: RtspServer, reader: str) -> None:
        before = descriptors()
        with Player(camera(server.url("cam"), reader, LONG)) as player:
            player.until(3)
            server.freeze()
            assert player.stop() < SOON_S
            assert descriptors() == before
        assert player.error is None

    @pytest.mark.parametrize("reader", READERS)
    def test_the_limit_ends_the_read(self, server: RtspServer, reader: str) -> None:
        with Player(camera(server.url("cam"), reader, Timeouts(5, 0.6))) as player:
            player.until(3)
            server.freeze()
            player.until_ended(2.6)
        assert isinstance(player.error, SourceError)
        assert "0.6 s" in str(player.error)
        assert not player.error.permanent

    @pytest.mark.parametrize("reader", READERS)
    def test_another_camera_does_not_notice(self, server: RtspServer, reader: str) -> None:
        with Player(camera(server.url("cam"), reader, LONG)) as one, Player(camera(server.url("cam"), reader)) as other:
            one.until(2)
            other.until(2)
            one.stop()
            count = len(other.captures)
            other.until(count + 5)
        assert other.error is None
