"""One contract for every source: numbered pictures in order, times that rise from 0, an end at every stop."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.sources.file import FileSource, check_file
from pipelines.sources.images import ImagesSource
from pipelines.sources.network import NetworkSource, has_end
from pipelines.sources.opening import Limits
from pipelines.sources.pace import Loop, Realtime
from pipelines.sources.reconnect import Reconnect, RetryOptions
from pipelines.sources.rtsp import RtspSource
from pipelines.sources.source import Source, Unheard
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.sources.webcam import WebcamSource
from tests.media import level, numbered
from tests.servers import Play, RtspServer
from tests.servers.peers import FullBacklog, HttpFiles, SilentPeer, StoppingHttp
from tests.system import need

pytestmark = pytest.mark.timeout(60)
SOON_S = 1.5
"""A stop ends every wait far below the limits of 10 s that the sources have here."""
LIMITS = Limits(10, 10)
FRAMES = 30


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered(tmp_path_factory.mktemp("sources") / "num.mp4", frames=FRAMES, gop=10)


@dataclass(frozen=True)
class Case:
    """A source and what its first frame's number may be; `whole`: it gives all frames of the clip and ends."""

    source: Source
    whole: bool


@contextmanager
def _file(clip: Path) -> Iterator[Case]:
    yield Case(FileSource(clip), True)


@contextmanager
def _file_threads(clip: Path) -> Iterator[Case]:
    yield Case(FileSource(clip, threads=4), True)


@contextmanager
def _realtime(clip: Path) -> Iterator[Case]:
    yield Case(Realtime(FileSource(clip)), True)


@contextmanager
def _loop(clip: Path) -> Iterator[Case]:
    yield Case(Loop(FileSource(clip)), False)


@contextmanager
def _http_file(clip: Path) -> Iterator[Case]:
    with HttpFiles(clip.parent) as server:
        url = server.url(clip.name)
        assert has_end(url, LIMITS, threading.Event())
        yield Case(NetworkSource(url, live=False), True)


@contextmanager
def _tcp(clip: Path) -> Iterator[Case]:
    need("ffmpeg")
    port = _free_port()
    command = ["ffmpeg", "-v", "error", "-re", "-stream_loop", "-1", "-i", str(clip), "-c", "copy", "-f", "mpegts"]
    sender = subprocess.Popen([*command, f"tcp://127.0.0.1:{port}?listen=1"], stderr=subprocess.DEVNULL)
    try:
        made = Reconnect(lambda: NetworkSource(f"tcp://127.0.0.1:{port}", live=True, limits=LIMITS), RetryOptions(0.1, 0.2))
        yield Case(made, False)
    finally:
        sender.kill()
        sender.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rtsp(transport: str) -> Callable[[Path], object]:
    @contextmanager
    def make(clip: Path) -> Iterator[Case]:
        need("gst-rtsp-server")
        with RtspServer({"cam": Play(clip, sound=False)}) as server:
            yield Case(RtspSource(server.url("cam"), transport=transport, limits=LIMITS), False)  # type: ignore[arg-type]

    return make


@contextmanager
def _synthetic(clip: Path) -> Iterator[Case]:
    yield Case(SyntheticSource(Synthetic(64, 64, 50)), False)


CASES = {
    "file": _file, "file, threads": _file_threads, "realtime": _realtime, "loop": _loop, "http file": _http_file,
    "tcp": _tcp, "rtsp tcp": _rtsp("tcp"), "rtsp udp": _rtsp("udp"), "synthetic": _synthetic,
}  # fmt: skip


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", list(CASES))
def test_the_contract(name: str, clip: Path) -> None:
    with CASES[name](clip) as case:  # type: ignore[attr-defined]
        before = _descriptors()
        stop = threading.Event()
        wanted = FRAMES + 1 if case.whole else 25
        captures = case.source.frames(stop, Unheard())
        taken: list[Capture] = list(islice((c for c in captures if not c.corrupt), wanted))
        assert len(taken) == (FRAMES if case.whole else 25)
        _check(taken, name)
        # A stop ends it, and closing the generator leaves nothing open.
        stop.set()
        began_s = time.monotonic()
        assert len(list(captures)) <= 1
        assert time.monotonic() - began_s < SOON_S
        captures.close()  # type: ignore[attr-defined]
        # The server of a test is in this process too, and closes its side when it notices.
        end_s = time.monotonic() + 5
        while _descriptors() > before and time.monotonic() < end_s:
            threading.Event().wait(0.01)
        assert _descriptors() <= before


def _check(taken: list[Capture], name: str) -> None:
    for a, b in pairwise(taken):
        assert a.arrived_s <= b.arrived_s
        if a.session == b.session:
            assert a.pts_s is not None
            assert b.pts_s is not None
            assert b.pts_s > a.pts_s
    for c in taken:
        assert c.arrived_s <= c.decoded_s
        assert c.picture.y.shape == (64, 64)
        assert c.picture.u.shape == c.picture.v.shape == (32, 32)
        assert c.picture.y.dtype == np.uint8
    if "synthetic" not in name:
        lumas = [round(float(c.picture.y.mean())) for c in taken]
        steps = {(b - a) % (2 * FRAMES) for a, b in pairwise(lumas)}
        assert steps == {2}, "pictures were lost, repeated or swapped"
    if name in ("file", "file, threads", "http file", "realtime"):
        assert [c.pts_s for c in taken] == pytest.approx([k / 25 for k in range(FRAMES)])
        assert [round(float(c.picture.y.mean())) for c in taken] == [level(k) for k in range(FRAMES)]


def _stopped_after(source: Source, begun: threading.Event | None, stop: threading.Event) -> float:
    """Run a source that gives nothing in a thread, stop it once it waits, and give the seconds it took to end."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            for _ in source.frames(stop, Unheard()):
                waiting.set()
            ended.append(None)
        except SourceError as error:
            ended.append(error)

    waiting = begun or threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert waiting.wait(10)
    began_s = time.monotonic()
    stop.set()
    thread.join(20)
    assert ended
    return time.monotonic() - began_s


@pytest.mark.parametrize("scheme", ["rtsp", "http", "tcp"])
def test_a_stop_ends_an_open_that_gets_no_answer(scheme: str) -> None:
    with SilentPeer() as peer:
        url = peer.url(scheme)
        source: Source = RtspSource(url, limits=LIMITS) if scheme == "rtsp" else NetworkSource(url, live=True, limits=LIMITS)
        assert _stopped_after(source, peer.accepted, threading.Event()) < SOON_S


def test_a_stop_ends_a_read_that_stalls(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "long.ts", frames=200, size=(320, 240))
    with StoppingHttp(clip, clip.stat().st_size * 3 // 4) as peer:
        source = NetworkSource(peer.url, live=True, limits=LIMITS)
        assert _stopped_after(source, None, threading.Event()) < SOON_S


def test_a_stop_ends_the_wait_for_a_frame_that_is_due_later(tmp_path: Path) -> None:
    clip = numbered(tmp_path / "slow.mp4", frames=2, rate=Fraction(1, 30))
    assert _stopped_after(Realtime(FileSource(clip)), None, threading.Event()) < SOON_S


def test_an_open_that_is_never_answered_ends_with_its_limit() -> None:
    with FullBacklog() as peer:
        source = RtspSource(f"rtsp://127.0.0.1:{peer.port}/cam", limits=Limits(0.5, 0.5))
        with pytest.raises(SourceError, match=r"nothing came within 0.5 s") as caught:
            list(source.frames(threading.Event(), Unheard()))
        assert not caught.value.permanent


def test_a_pipe_that_nobody_writes_ends_with_its_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.mp4")
    with pytest.raises(SourceError, match=r"pipe\.mp4"):
        list(FileSource(tmp_path / "pipe.mp4", limits=Limits(0.3, 0.3)).frames(threading.Event(), Unheard()))


# Reconnect, on a clock that is moved.


class _Scripted:
    """A source that gives what its script says: numbers are captures, errors are raised."""

    live = True

    def __init__(self, script: list[object], template: Capture) -> None:
        self._script, self._template = script, template

    def frames(self, stop: threading.Event, watch: object) -> Iterator[Capture]:
        for entry in self._script:
            if isinstance(entry, Exception):
                raise entry
            yield self._template


class _Pauses(threading.Event):
    """A stop that notes every wait and is set at the last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._limit = limit

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        if len(self.pauses) == self._limit:
            self.set()
        return self.is_set()


@pytest.fixture(scope="module")
def capture(clip: Path) -> Capture:
    with closing(FileSource(clip).frames(threading.Event(), Unheard())) as captures:  # type: ignore[type-var]
        return next(iter(captures))


def _sessions(scripts: list[list[object]], capture: Capture, pauses: int) -> tuple[list[int], _Pauses]:
    left = iter(scripts)
    stop = _Pauses(pauses)
    source = Reconnect(lambda: _Scripted(next(left), capture), chance=lambda: 0.0, clock=lambda: 0.0)
    return [c.session for c in source.frames(stop, Unheard())], stop


def test_pauses_grow_from_half_a_second_to_five_and_begin_anew_after_a_picture(capture: Capture) -> None:
    gone = SourceError("refused")
    scripts: list[list[object]] = [[gone]] * 5 + [[1, gone]] + [[gone]] * 2
    sessions, stop = _sessions(scripts, capture, 8)
    assert stop.pauses == [0.5, 1, 2, 4, 5, 0.5, 1, 2]
    assert sessions == [0]


def test_every_return_is_a_new_session(capture: Capture) -> None:
    gone = SourceError("hung up")
    sessions, _ = _sessions([[1, 1, gone], [1, gone], [gone], [1]], capture, 4)
    assert sessions == [0, 0, 1, 2]


def test_jitter_shortens_a_pause_by_up_to_half(capture: Capture) -> None:
    stop = _Pauses(1)
    source = Reconnect(lambda: _Scripted([SourceError("refused")], capture), chance=lambda: 1.0)
    list(source.frames(stop, Unheard()))
    assert stop.pauses == [0.25]


def test_what_no_retry_can_mend_is_raised_by_the_first_open_only(capture: Capture) -> None:
    wrong = SourceError("401", permanent=True, denied=True)
    with pytest.raises(SourceError, match="401"):
        _sessions([[wrong]], capture, 1)
    _, stop = _sessions([[1], [wrong], [wrong]], capture, 3)
    assert stop.pauses == [0.5, 60, 60]


# What cannot be opened.


def _message(source: Source) -> SourceError:
    with pytest.raises(SourceError) as caught:
        list(source.frames(threading.Event(), Unheard()))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_is_named_without_the_password(status: int, clip: Path) -> None:
    with HttpFiles(clip.parent, answers={"/num.mp4": status}) as server:
        url = server.url("num.mp4").replace("http://", "http://user:geheim@")
        error = _message(NetworkSource(url, live=True))
    assert error.permanent
    assert error.denied == (status != 404)
    assert str(status) in str(error)
    assert "geheim" not in str(error)


def test_files_that_are_none(tmp_path: Path, clip: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("no video at all\n" * 100)
    (tmp_path / "cut.mp4").write_bytes(clip.read_bytes()[: clip.stat().st_size * 6 // 10])
    for name in ("empty.mp4", "text.mp4", "cut.mp4", "missing.mp4", ""):
        with pytest.raises(SourceError) as caught:
            check_file(tmp_path / name)
        assert caught.value.permanent
        assert name in str(caught.value)


def test_unknown_hosts_and_closed_ports() -> None:
    unknown = _message(RtspSource("rtsp://u:geheim@nosuch.invalid/cam", limits=LIMITS))
    assert unknown.permanent
    assert "nosuch.invalid" in str(unknown)
    assert "geheim" not in str(unknown)
    refused = _message(RtspSource(f"rtsp://127.0.0.1:{_free_port()}/cam", limits=LIMITS))
    assert not refused.permanent
    missing = _message(WebcamSource(Path("/dev/video97")))
    assert missing.permanent


def test_names_that_mean_something_elsewhere_are_just_names(tmp_path: Path, clip: Path) -> None:
    for name in ("a b.mp4", "тест 猫.mp4", "x:8:00.mp4", "n%03d.mp4", "-dash.mp4", "it's;$(id).mp4"):
        shutil.copy(clip, tmp_path / name)
        assert len(list(FileSource(tmp_path / name).frames(threading.Event(), Unheard()))) == FRAMES


# Pictures.


def test_pictures_come_in_the_order_of_their_names_and_a_broken_one_is_counted(tmp_path: Path) -> None:
    told: list[str] = []

    class Told(Unheard):
        def fault(self, message: str) -> None:
            told.append(message)

    paths = [tmp_path / name for name in ("b%03d.png", "a.jpg", "broken.jpg", "c.bmp")]
    for luma, path in zip((40, 90, 0, 200), paths, strict=True):
        cv2.imwrite(str(path), np.full((33, 47, 3), luma, np.uint8))
    paths[2].write_bytes(b"no picture")
    taken = list(ImagesSource(paths).frames(threading.Event(), Told()))
    assert [round(float(c.picture.y.mean())) for c in taken] == pytest.approx([40, 90, 200], abs=1)
    assert all(c.picture.full_range and c.pts_s is None for c in taken)
    assert taken[0].picture.y.shape == (33, 47)
    assert len(told) == 1
    assert "broken.jpg" in told[0]
