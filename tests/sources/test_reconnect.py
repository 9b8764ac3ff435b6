"""Retry: pauses, sessions and reports, with a stop that acts as the clock; and a real camera that fails and returns."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import SourceError
from pipelines.frame import Capture, Picture, StreamInfo
from pipelines.sources.opening import Timeouts
from pipelines.sources.wrappers.reconnect import Reconnect, RetryOptions
from pipelines.watch import Watch
from tests.clips import grey
from tests.servers import Play, RtspServer
from tests.sources.play import READERS, SOON_S, Player, RecordingWatch, camera, descriptors, numbers
from tests.system import need

pytestmark = pytest.mark.timeout(60)
GONE = SourceError("gone")
DENIED = SourceError("401", permanent=True, denied=True)
ABSENT = SourceError("404", permanent=True)


class Clock(threading.Event):
    """A stop that advances the time when it is waited for, and is set after a number of waits."""

    def __init__(self, waits: int = 100) -> None:
        super().__init__()
        self.now_s = 100.0
        self.pauses: list[float] = []
        self._waits = waits

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.now_s += timeout
        if len(self.pauses) == self._waits:
            self.set()
        return self.is_set()


class Script:
    """Sessions one after another: each gives a number of pictures, then raises the error, or ends."""

    live = True

    def __init__(self, clock: Clock, *sessions: tuple[int, SourceError | None]) -> None:
        self._clock, self._left = clock, iter(sessions)
        self.open = 0
        self.opened = 0

    def __call__(self) -> Script:
        return self

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        pictures, error = next(self._left)
        self.open += 1
        self.opened += 1
        try:
            for k in range(pictures):
                self._clock.now_s += 0.04
                now = self._clock.now_s
                yield Capture(Picture(*grey(16, (2, 2))), k / 25, now, now, StreamInfo())
            if error is not None:
                raise error
        finally:
            self.open -= 1


def _run(*sessions: tuple[int, SourceError | None], chance: float = 0.0) -> tuple[Clock, RecordingWatch, list[Capture]]:
    """Play the script, with a stop in the pause after its last session."""
    clock, reports = Clock(len(sessions)), RecordingWatch()
    script = Script(clock, *sessions)
    source = Reconnect(script, clock=lambda: clock.now_s, chance=lambda: chance)
    captures = list(source.frames(clock, reports))
    assert script.open == 0
    return clock, reports, captures


def test_pauses_double_from_half_a_second_to_five() -> None:
    clock, _, _ = _run(*[(0, GONE)] * 7)
    assert clock.pauses == [0.5, 1, 2, 4, 5, 5, 5]


@pytest.mark.parametrize(("chance", "factor"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_chance_takes_up_to_half_of_a_pause(chance: float, factor: float) -> None:
    clock, _, _ = _run(*[(0, GONE)] * 5, chance=chance)
    assert clock.pauses == pytest.approx([factor * s for s in (0.5, 1, 2, 4, 5)])


def test_a_thousand_failures_still_make_a_pause() -> None:
    clock, _, _ = _run(*[(0, GONE)] * 1100)
    assert clock.pauses[-1] == 5


def test_a_picture_begins_the_pauses_anew() -> None:
    clock, _, _ = _run((0, GONE), (0, GONE), (1, GONE), (0, GONE))
    assert clock.pauses == [0.5, 1, 0.5, 1]


def test_sessions_count_what_gave_pictures() -> None:
    _, _, captures = _run((0, GONE), (2, GONE), (0, GONE), (1, GONE), (3, None))
    assert [c.session for c in captures] == [0, 0, 1, 2, 2, 2]


def test_the_plain_end_of_a_live_stream_is_an_outage() -> None:
    clock, reports, _ = _run((2, None), (1, None))
    assert len(reports.outages) == 2
    assert clock.pauses == [0.5, 0.5]


def test_an_outage_begins_with_the_last_picture() -> None:
    _, reports, _ = _run((2, GONE), (0, GONE), (1, GONE))
    assert [since for since, _ in reports.outages] == pytest.approx([100.08, 100.08, 100.08 + 0.5 + 1 + 0.04])
    assert [message for _, message in reports.outages] == ["gone"] * 3
    assert reports.back == 1


def test_a_first_open_that_fails_is_an_outage_since_the_start() -> None:
    _, reports, _ = _run((0, GONE), (1, GONE))
    assert reports.outages[0] == (100.0, "gone")
    assert reports.back == 1


@pytest.mark.parametrize("error", [DENIED, ABSENT])
def test_what_no_retry_can_mend_ends_a_source_that_never_worked(error: SourceError) -> None:
    clock, reports = Clock(), RecordingWatch()
    with pytest.raises(SourceError) as caught:
        list(Reconnect(Script(clock, (0, error))).frames(clock, reports))
    assert caught.value is error
    assert clock.pauses == []
    assert reports.outages == []


def test_after_a_success_it_is_retried_for_ever_and_a_refused_password_once_a_minute() -> None:
    clock, _, captures = _run((1, GONE), (0, DENIED), (0, DENIED), (0, ABSENT), (1, GONE))
    assert clock.pauses[1:3] == [60, 60]
    assert clock.pauses[3] <= 5
    assert [c.session for c in captures] == [0, 1]


class Held:
    """A resource of a session."""

    def __init__(self) -> None:
        self.error: SourceError | None = None
        ALIVE.add(self)


ALIVE: weakref.WeakSet[Held] = weakref.WeakSet()


class Keeping:
    """A source that stores the error that ended it, as clients do."""

    live = True

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        held = Held()
        yield Capture(Picture(*grey(16, (2, 2))), 0.0, 0.0, 0.0, StreamInfo())
        try:
            raise OSError
        except OSError:
            held.error = SourceError("gone")
            raise held.error  # noqa: B904 - with its context


def test_what_a_session_held_is_gone_when_the_next_one_opens() -> None:
    """Without the garbage collector, which would run after a dozen of them."""
    gc.disable()
    try:
        captures = Reconnect(Keeping).frames(Clock(), RecordingWatch())
        for _ in range(5):
            next(captures)
            assert len(ALIVE) == 1
        captures.close()
    finally:
        gc.enable()


def test_options() -> None:
    clock = Clock(4)
    source = Reconnect(Script(clock, *[(0, GONE)] * 4), RetryOptions(1, 3), chance=lambda: 0.0)
    list(source.frames(clock, RecordingWatch()))
    assert clock.pauses == [1, 2, 3, 3]


def test_closing_early_closes_the_session() -> None:
    clock = Clock()
    script = Script(clock, (5, GONE))
    frames = Reconnect(script).frames(clock, RecordingWatch())
    next(frames)
    assert script.open == 1
    frames.close()
    assert script.open == 0


def test_a_fault_of_the_program_is_no_outage() -> None:
    class Broken(Script):
        def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
            raise ZeroDivisionError("x")

    clock = Clock()
    with pytest.raises(ZeroDivisionError):
        list(Reconnect(Broken(clock)).frames(clock, RecordingWatch()))
    assert clock.pauses == []


# A real camera.


@pytest.fixture
def server(clips: Path) -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    with RtspServer({"cam": Play(clips / "num.mp4", sound=False)}) as server:
        yield server


def _retried(server: RtspServer, reader: str) -> Reconnect:
    return Reconnect(lambda: camera(server.url("cam"), reader, Timeouts(2, 0.8)), RetryOptions(0.05, 0.1))


@pytest.mark.parametrize("reader", READERS)
def test_a_camera_that_is_killed_comes_back_as_the_next_session(server: RtspServer, reader: str) -> None:
    before = descriptors() - 2  # the pipes to a server that no longer runs at the end
    with Player(_retried(server, reader)) as player:
        player.until(3)
        server.kill()
        player.reports.until_interrupted()
        server.restart()
        back = player.until_session(1)
        server.kill()
        player.reports.until_interrupted(len(player.reports.outages) + 1)
        server.restart()
        player.until_session(2)
        assert player.stop() < SOON_S
        server.kill()
        assert descriptors() == before
    assert player.error is None
    assert player.reports.back == 2
    assert back.pts_s == 0
    captures = player.captures
    assert all(b.pts_s > a.pts_s for a, b in pairwise(captures) if a.session == b.session)  # type: ignore[operator]
    assert all(a.decoded_s <= b.arrived_s for a, b in pairwise(captures) if b.session > a.session)
    for session in range(3):
        clean = numbers([c for c in captures if c.session == session and not c.corrupt])
        assert clean == [(clean[0] + k) % 100 for k in range(len(clean))] if clean else True


@pytest.mark.parametrize("reader", READERS)
def test_a_camera_that_freezes_is_given_up_and_taken_again(server: RtspServer, reader: str) -> None:
    with Player(_retried(server, reader)) as player:
        player.until(3)
        server.freeze()
        player.reports.until_interrupted()
        frozen = len(player.captures)
        assert {c.session for c in player.captures} == {0}
        server.thaw()
        player.until_session(1)
    assert player.error is None
    assert frozen >= 3
    assert all(np.isfinite(c.arrived_s) for c in player.captures)


@pytest.mark.parametrize("reader", READERS)
def test_a_camera_that_is_not_there_yet(server: RtspServer, reader: str) -> None:
    server.kill()
    with Player(_retried(server, reader)) as player:
        player.reports.until_interrupted(2)
        server.restart()
        assert player.until(1)[0].session == 0
    assert player.error is None
    assert player.reports.back == 1
