"""One set of assertions, run over every source and every wrapper."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from app.bench.player import Player as ClipPlayer
from pipelines.frame import Capture
from pipelines.sources.files.file import FileSource
from pipelines.sources.files.images import ImagesSource
from pipelines.sources.network import NetworkSource
from pipelines.sources.source import Source
from pipelines.sources.synthetic import FIRST, Synthetic, SyntheticSource
from pipelines.sources.wrappers.pace import Loop, Realtime
from pipelines.sources.wrappers.reconnect import Reconnect
from tests.servers import RtspServer
from tests.servers.peers import HttpFiles
from tests.sources.play import READERS, SOON_S, Player, RecordingWatch, Transmitter, camera, descriptors, first, numbers
from tests.system import need

pytestmark = pytest.mark.timeout(60)
TAKEN = 12
GOP = 25


@dataclass(frozen=True)
class Case:
    """A source under test: a function that makes a new one, and the expected pictures."""

    make: Callable[[], Source]
    live: bool
    timed: bool = True
    count: int = TAKEN
    """Least number of captures."""
    step: int = 2
    restarts: bool = False
    joins: bool = False
    """Whether it may begin between two key pictures."""


Made = Callable[[Path, ExitStack], Case]


def _http(clips: Path, stack: ExitStack) -> Case:
    peer = stack.enter_context(HttpFiles(clips))
    return Case(lambda: NetworkSource(peer.url("num.mp4"), live=False), live=False)


def _tcp(clips: Path, stack: ExitStack) -> Case:
    need("ffmpeg")
    camera = stack.enter_context(Transmitter(clips / "num.mp4"))
    return Case(lambda: NetworkSource(camera.url, live=True), live=True, joins=True, count=30)


def _again(clips: Path, stack: ExitStack) -> Case:
    inner = _tcp(clips, stack).make
    return Case(lambda: Reconnect(inner), live=True, joins=True, count=30)


LOCAL: dict[str, Made] = {
    "file": lambda clips, _: Case(lambda: FileSource(clips / "num.mp4"), live=False),
    "b-frames": lambda clips, _: Case(lambda: FileSource(clips / "b.mkv", threads=2), live=False),
    "images": lambda clips, _: Case(lambda: ImagesSource(sorted((clips / "num").iterdir())), live=False, timed=False, count=5),
    "synthetic": lambda *_: Case(lambda: SyntheticSource(Synthetic(64, 64, 50)), live=True, step=1),
    "realtime": lambda clips, _: Case(lambda: Realtime(FileSource(clips / "num.mp4")), live=True),
    "player": lambda clips, _: Case(lambda: ClipPlayer(clips / "num.mp4"), live=True),
    "loop": lambda clips, _: Case(lambda: Loop(FileSource(clips / "b.mkv")), live=False, count=120, restarts=True),
    "http": _http,
    "tcp": _tcp,
    "reconnect": _again,
}


@dataclass(frozen=True)
class Played:
    """The captures of a case, each with a copy of its luma plane at that time."""

    case: Case
    captures: list[Capture]
    seen: list[npt.NDArray[np.uint8]]


def _played(case: Case) -> Played:
    source = case.make()
    assert source.live is case.live
    frames = source.frames(threading.Event(), RecordingWatch())
    captures, seen = [], []
    for capture in islice(frames, case.count):
        captures.append(capture)
        seen.append(capture.picture.y.copy())
    frames.close()
    return Played(case, captures, seen)


class Contract:
    """The promises of every source."""

    def test_pictures_are_whole_and_in_order(self, played: Played) -> None:
        captures, case = played.captures, played.case
        assert len(captures) == case.count
        found = numbers([c for c in captures if not c.corrupt], case.step)
        assert len(found) > 3
        turn = 50 if case.restarts else 100
        assert all(b == (a + 1) % turn for a, b in pairwise(found)), found
        for capture in captures:
            y, u, v = capture.picture.y, capture.picture.u, capture.picture.v
            assert (y.dtype, u.dtype, v.dtype) == (np.uint8,) * 3
            assert (y.shape, u.shape, v.shape) == ((64, 64), (32, 32), (32, 32))

    def test_nothing_is_corrupt_from_the_first_key_picture_on(self, played: Played) -> None:
        captures, case = played.captures, played.case
        corrupt = [c.corrupt for c in captures]
        clean = corrupt.index(False)
        assert corrupt == [k < clean for k in range(case.count)]
        assert clean == 0 or (case.joins and numbers(captures)[clean] % GOP == 0)

    def test_times_rise_strictly_from_nought_in_each_session(self, played: Played) -> None:
        captures, case = played.captures, played.case
        if not case.timed:
            assert [c.pts_s for c in captures] == [None] * case.count
            return
        assert captures[0].pts_s == 0
        for a, b in pairwise(captures):
            assert a.pts_s is not None
            assert b.pts_s is not None
            assert b.pts_s == 0 if b.session > a.session else b.pts_s > a.pts_s
        assert [c.session for c in captures] == [k // 50 if case.restarts else 0 for k in range(case.count)]

    def test_arrival_comes_before_decoding_and_neither_goes_back(self, played: Played) -> None:
        captures = played.captures
        assert all(c.arrived_s <= c.decoded_s for c in captures)
        assert all(a.arrived_s <= b.arrived_s and a.decoded_s <= b.decoded_s for a, b in pairwise(captures))

    def test_planes_outlive_the_source(self, played: Played) -> None:
        gc.collect()
        assert all(np.array_equal(c.picture.y, y) for c, y in zip(played.captures, played.seen, strict=True))

    def test_ends_soon_after_a_stop_between_two_pictures(self, case: Case) -> None:
        with Player(case.make()) as player:
            player.until(3)
            assert player.stop() < SOON_S
        assert player.error is None

    def test_a_stop_before_the_start_ends_it_soon(self, case: Case) -> None:
        with Player(case.make(), stopped=True) as player:
            player.until_ended(SOON_S)
        assert len(player.captures) <= 1


class TestHere(Contract):
    @pytest.fixture(params=LOCAL)
    def case(self, request: pytest.FixtureRequest, clips: Path) -> Iterator[Case]:
        with ExitStack() as stack:
            yield LOCAL[request.param](clips, stack)

    @pytest.fixture(params=LOCAL, scope="class")
    @classmethod
    def played(cls, request: pytest.FixtureRequest, clips: Path) -> Played:
        with ExitStack() as stack:
            return _played(LOCAL[request.param](clips, stack))


def _camera(server: RtspServer, reader: str) -> Case:
    return Case(lambda: camera(server.url("cam"), reader), live=True, joins=True, count=30)


class TestCamera(Contract):
    @pytest.fixture(params=READERS)
    def case(self, request: pytest.FixtureRequest, server: RtspServer) -> Case:
        return _camera(server, request.param)

    @pytest.fixture(params=READERS, scope="class")
    @classmethod
    def played(cls, request: pytest.FixtureRequest, server: RtspServer) -> Played:
        return _played(_camera(server, request.param))


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("how", ["closed early", "closed before it began", "stopped", "dropped"])
def test_no_descriptor_is_left(name: str, how: str, clips: Path) -> None:
    first(LOCAL["file"](clips, ExitStack()).make(), 1)  # files that libraries open once and keep open
    before = descriptors()
    with ExitStack() as stack:
        source = LOCAL[name](clips, stack).make()
        stop = threading.Event()
        frames = source.frames(stop, RecordingWatch())
        if how != "closed before it began":
            assert next(frames).picture.y.shape == (64, 64)
        if how == "stopped":
            stop.set()
            assert len(list(frames)) <= 1
        elif how == "dropped":
            del frames
        else:
            frames.close()
    assert descriptors() == before


@pytest.mark.parametrize("reader", READERS)
def test_a_camera_is_let_go_in_the_thread_that_had_it(server: RtspServer, reader: str) -> None:
    before = descriptors()
    source = camera(server.url("cam"), reader)
    frames = source.frames(threading.Event(), RecordingWatch())
    next(frames)
    assert descriptors() > before
    frames.close()
    assert descriptors() == before


def test_a_file_ends_by_itself_with_every_frame_and_its_descriptor_closed(clips: Path) -> None:
    before = descriptors()
    with Player(FileSource(clips / "num.mp4")) as player:
        player.until_ended()
        assert descriptors() == before
    assert numbers(player.captures) == list(range(100))
    assert player.captures[0].info.frames == 100
    assert player.captures[0].info.sound == str(clips / "num.mp4")


def test_numbered_pictures_of_the_synthetic_camera_go_round_after_220() -> None:
    captures = first(SyntheticSource(Synthetic(2, 2, 1000)), 230)
    assert [int(c.picture.y[0, 0]) - FIRST for c in captures] == [k % 220 for k in range(230)]
