"""Faults of cameras: late, silent, gone, frozen, with an awkward password; and the costs of a long run.

Every camera is read in all ways that there are: by the two RTSP clients, over HTTP, and as a transport stream over TCP.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from pipelines.errors import SourceError
from pipelines.media import pixels
from pipelines.results import CAPACITY, MOST
from pipelines.sources.files.file import FileSource
from pipelines.sources.files.images import ImagesSource
from pipelines.sources.network import NetworkSource
from pipelines.watch import NullWatch
from tests.clips import level, numbered
from tests.command import PROBE, WATCHLINE, environ, running, watchline
from tests.servers import Play, RtspServer
from tests.servers.clock import ClockCamera
from tests.servers.peers import FullBacklog, SilentPeer
from tests.servers.stamp import read_stamp, strip_of
from tests.sources.conftest import ffmpeg
from tests.sources.play import PATIENCE_S, Transmitter, camera
from tests.system import need

pytestmark = [pytest.mark.field, pytest.mark.timeout(90)]
Line = dict[str, Any]
CLIENTS = ("native", "ffmpeg")
STOP_S = 3.0
BACK_S = 10.0
"""Within so long after a camera is back its first picture must be there."""


@pytest.fixture(scope="module")
def num(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 numbered pictures, 4 s, a key picture each second."""
    return numbered(tmp_path_factory.mktemp("cameras") / "num.mp4", frames=100, gop=25)


# The cameras, and a run that watches them.


@dataclass
class Cameras:
    """An RTSP camera and two that speak MPEG-TS, all with the same pictures. `urls`: by the stream's name."""

    servers: dict[str, RtspServer | Transmitter]

    @property
    def urls(self) -> dict[str, str]:
        return {name: s.url("cam") if isinstance(s, RtspServer) else s.url for name, s in self.servers.items()}

    def each(self, what: str) -> None:
        """Call kill, restart, freeze or thaw of every one."""
        for server in self.servers.values():
            getattr(server, what)()


@pytest.fixture
def cameras(num: Path) -> Iterator[Cameras]:
    need("gst-rtsp-server", "ffmpeg")
    with RtspServer({"cam": Play(num, sound=False)}) as rtsp, Transmitter(num) as tcp, Transmitter(num, http=True) as http:
        yield Cameras({"rtsp": rtsp, "tcp": tcp, "http": http})


class Run:
    """Commands that run side by side, and their messages so far, by stream and with their times."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]], names: Sequence[str]) -> None:
        self.processes = processes
        self.lines: dict[str, list[tuple[float, Line]]] = {name: [] for name in names}
        self.said: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        reads = [(read, p) for p in processes for read in (self._read_lines, self._read_words)]
        self._readers = [threading.Thread(target=read, args=(p,), name=read.__name__) for read, p in reads]
        for reader in self._readers:
            reader.start()

    def _read_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            with self._changed:
                self.lines[line["stream"]].append((time.monotonic(), line))
                self._changed.notify_all()

    def _read_words(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for text in process.stderr:
            with self._changed:
                self.said.append((time.monotonic(), text.strip()))
                self._changed.notify_all()

    def until(self, wanted: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        """Wait until it is so."""
        with self._changed:
            assert self._changed.wait_for(wanted, limit_s), f"not within {limit_s:g} s; said: {self.said[-8:]}"

    def until_ready(self) -> float:
        """Wait until all are; when the first was."""
        self.until(lambda: len(self._ready()) == len(self.processes))
        return self._ready()[0]

    def _ready(self) -> list[float]:
        return [s for s, text in self.said if text.startswith("ready after")]

    def until_each(self, wanted: Callable[[Line], bool], since_s: float = 0.0) -> dict[str, float]:
        """When, after `since_s`, each stream first had a line that is as wanted."""
        return self._until_each(lambda name: [s for s, line in self.lines[name] if s > since_s and wanted(line)])

    def until_said(self, words: str, since_s: float = 0.0) -> dict[str, float]:
        """When, after `since_s`, these words were first said of each stream."""
        return self._until_each(
            lambda name: [s for s, text in self.said if s > since_s and text.startswith(f"{name}:") and words in text]
        )

    def _until_each(self, when: Callable[[str], list[float]]) -> dict[str, float]:
        self.until(lambda: all(when(name) for name in self.lines))
        return {name: when(name)[0] for name in self.lines}

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Send a signal; how long it took until all had ended."""
        began_s = time.monotonic()
        for process in self.processes:
            process.send_signal(number)
        assert [process.wait(PATIENCE_S) for process in self.processes] == [128 + number] * len(self.processes)
        took_s = time.monotonic() - began_s
        self.join()
        return took_s

    def join(self) -> None:
        """Until all that they say has been read."""
        for reader in self._readers:
            reader.join()


@contextlib.contextmanager
def watching(urls: Mapping[str, str], folder: Path, *flags: str, model: Sequence[str] = PROBE) -> Iterator[Run]:
    """Run the command over the streams of these names, with JSON lines and a report; those that are RTSP once more, as
    NAME-ffmpeg, by the other client."""
    again = {f"{name}-ffmpeg": url for name, url in urls.items() if url.startswith("rtsp")}
    with ExitStack() as stack:
        processes = []
        for client, streams in (("native", urls), ("ffmpeg", again)):
            config = folder / f"{client}.yaml"
            config.write_text("streams:\n" + "".join(f'  {name}: {{source: "{url}"}}\n' for name, url in streams.items()))
            outputs = ("--jsonl", "-", "--report", str(folder / f"{client}.report"), "--rtsp-client", client)
            if streams:
                processes.append(stack.enter_context(running("run", "--config", str(config), *model, *outputs, *flags)))
        run = Run(processes, [*urls, *again])
        try:
            yield run
        finally:
            for process in processes:
                process.kill()
            run.join()


def shown(line: Line) -> bool:
    return bool(line["status"] == "ok")


def reported(folder: Path) -> dict[str, dict[str, Any]]:
    """The streams of the reports."""
    reports = [json.loads(path.read_text()) for path in folder.glob("*.report")]
    return {name: stream for report in reports for name, stream in report["streams"].items()}


def adds_up(stream: Mapping[str, Any]) -> bool:
    return bool(stream["captured"] == stream["shown"] + stream["failed"] + sum(stream["dropped"].values()))


def frames_in(path: Path) -> int:
    """Frames of a video that decode."""
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


# C01. Nothing grows old before a model that is too slow.


@pytest.mark.parametrize("seconds", [10, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(150)])])
def test_c01_frames_are_as_old_at_the_end_as_at_the_beginning(seconds: int, tmp_path: Path) -> None:
    """The age is read from the picture itself: its stamp stands in the annotated video."""
    need("gst-rtsp-server")
    out, slow = tmp_path / "out", ("--model", "probe", "--no-show", "--probe-ms-per-batch", "200")
    out.mkdir()
    frames = 25 * seconds
    with (
        ClockCamera(size=(640, 480)) as camera,
        watching({"cam": camera.url()}, tmp_path, "-o", f"{out}/", "--max-frames", str(frames), model=slow) as run,
    ):
        assert [process.wait(seconds + PATIENCE_S) for process in run.processes] == [0, 0]
        run.join()
    for name, stream in reported(tmp_path).items():
        lines = [line for _, line in run.lines[name] if shown(line)]
        times = [line["shown_s"] for line in lines]
        ages = _ages_ms(out / f"{name}.mp4", times)
        assert adds_up(stream)
        assert stream["captured"] == len(run.lines[name]) == frames
        assert stream["dropped"]["overload"] + stream["dropped"]["deadline"] > 10 * seconds
        assert len(ages) == stream["shown"] > seconds
        third = len(ages) // 3
        assert max(ages[third:]) <= 500, name
        if seconds >= 60:
            slope = np.polyfit(times[third:], ages[third:], 1)[0]
            assert abs(slope) < 1, f"{name}: {slope} ms older each second"


def _ages_ms(video: Path, shown_s: Sequence[float]) -> list[float]:
    """Of each picture of the video, when it was shown."""
    ages = []
    with av.open(str(video)) as container:
        for frame, at_s in zip(container.decode(video=0), shown_s, strict=True):
            plane = frame.planes[0]
            stamp = read_stamp(strip_of(np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height]))
            assert stamp is not None
            ages.append((int(1e3 * at_s) - stamp) % 2**32)
    return ages


def test_c01_a_model_slower_than_a_file_drops_nothing(num: Path) -> None:
    slow = ("--model", "probe", "--no-show", "--probe-ms-per-batch", "200")
    done = watchline("run", str(num), *slow, "--jsonl", "-")
    assert [(k["frame"], k["labels"][0]["id"]) for k in done.lines] == [(n, level(n)) for n in range(100)]


# C02. A camera that says nothing.

LIMIT_S = 2


def test_c02_peers_that_never_answer_are_given_up_in_time_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    """They accept and say nothing, or their queue is full so that no connection comes about."""
    with SilentPeer() as silent, FullBacklog() as full:
        ports = {"silent": silent.port, "full": full.port}
        urls = {f"{n}-{s}": f"{s}://127.0.0.1:{port}/cam" for n, port in ports.items() for s in ("rtsp", "http", "tcp")}
        with watching(urls, tmp_path, "--open-timeout", str(LIMIT_S), "--read-timeout", "30") as run:
            ready_s = run.until_ready()
            for name, said_s in run.until_said("trying again").items():
                assert LIMIT_S - 0.2 <= said_s - ready_s <= LIMIT_S + 1, name
            run.until_said("trying again", time.monotonic())  # a second time: they are not forgotten
            assert run.stop() <= STOP_S
    for stream in reported(tmp_path).values():
        assert stream["captured"] == 0
        assert len(stream["outages"]) == 1


def test_c02_a_limit_is_what_was_asked_for(tmp_path: Path) -> None:
    """No less and no more, 7 s as well as 2, with any other limit."""
    with SilentPeer() as peer:
        urls = {scheme: peer.url(scheme) for scheme in ("rtsp", "tcp", "http")}
        with watching(urls, tmp_path, "--open-timeout", "7", "--read-timeout", "1") as run:
            ready_s = run.until_ready()
            for name, said_s in run.until_said("nothing came within 7 s").items():
                assert 6.8 <= said_s - ready_s <= 8, name


def test_c02_cameras_that_stop_sending_are_given_up_in_time_and_come_back(cameras: Cameras, tmp_path: Path) -> None:
    with watching(cameras.urls, tmp_path, "--read-timeout", str(LIMIT_S)) as run:
        run.until_each(shown)
        cameras.each("freeze")
        frozen_s = time.monotonic()
        for name, said_s in run.until_said("trying again", frozen_s).items():
            assert said_s - frozen_s <= LIMIT_S + 1, name
        cameras.each("thaw")
        thawed_s = time.monotonic()
        back = run.until_each(lambda line: shown(line) and line["session"] > 0, thawed_s)
        assert all(s - thawed_s <= BACK_S for s in back.values()), back
        assert run.stop() <= STOP_S
    for name, stream in reported(tmp_path).items():
        assert adds_up(stream), name
        assert stream["reconnects"] == len(stream["outages"]) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_c02_a_stop_while_cameras_are_silent_finishes_the_outputs(number: int, cameras: Cameras, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with watching(cameras.urls, tmp_path, "--read-timeout", "30", "-o", f"{out}/") as run:
        run.until_each(lambda line: shown(line) and line["frame"] >= 10)
        cameras.each("freeze")
        assert run.stop(number) <= STOP_S
    for name, stream in reported(tmp_path).items():
        assert adds_up(stream), name
        assert frames_in(out / f"{name}.mp4") == stream["shown"] > 0


# C04. Cameras that go and come back, again and again.


@dataclass
class Usage:
    """Resources of a process."""

    descriptors: int
    threads: int
    resident_mb: float

    @staticmethod
    def of(pid: int) -> Usage:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return Usage(len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]), int(status["VmRSS"].split()[0]) / 1024)


CYCLES = [(2, 0.5), pytest.param(20, 5.0, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]


@pytest.mark.parametrize(("cycles", "away_s"), CYCLES)
def test_c04_cameras_come_back_every_time_and_nothing_piles_up(
    cycles: int, away_s: float, cameras: Cameras, tmp_path: Path
) -> None:
    used: list[list[Usage]] = []
    with watching(cameras.urls, tmp_path, "--read-timeout", "3") as run:
        run.until_each(shown)
        for cycle in range(1, cycles + 1):
            cameras.each("kill")
            killed_s = time.monotonic()
            gone = run.until_said("trying again", killed_s)
            run.until_said("trying again", max(*gone.values(), killed_s + away_s))
            cameras.each("restart")
            back_s = time.monotonic()
            back = run.until_each(lambda line, n=cycle: shown(line) and line["session"] == n, back_s)  # type: ignore[misc]
            assert all(s - back_s <= BACK_S for s in back.values()), (cycle, back)
            used.append([Usage.of(process.pid) for process in run.processes])
        run.stop()
    for first, last in zip(used[0], used[-1], strict=True):
        assert abs(last.descriptors - first.descriptors) <= 2, used
        assert abs(last.threads - first.threads) <= 2, used
        assert last.resident_mb - first.resident_mb < 20, used
    for name, stream in reported(tmp_path).items():
        assert adds_up(stream), name
        assert stream["reconnects"] == cycles
        lines = [line for _, line in run.lines[name]]
        assert [line["frame"] for line in lines] == list(range(stream["captured"])), name
        assert all(b["arrived_s"] >= a["arrived_s"] and b["session"] >= a["session"] for a, b in pairwise(lines)), name


# C05. The costs of a long run.

MORE_MB = 30
PIPE = 400
"""Lines that fit between the program's last line and a reader that sleeps: a pipe of 64 KiB and a buffer."""
FAST = ("synthetic:64x64@1000", 1 + 4096)
"""A camera as quick as can be, and the frames that may be between its decoder and its outputs: the lane's inbox, which
holds those that were dropped, and the one that is being shown."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 numbered pictures."""
    folder = tmp_path_factory.mktemp("long")
    num = numbered(folder / "num.mp4", frames=100, gop=25)
    ffmpeg("-stream_loop", 199, "-i", num, "-c", "copy", folder / "long.mp4")
    return folder / "long.mp4"


@pytest.mark.parametrize("source", ["file", pytest.param("live", marks=[pytest.mark.slow, pytest.mark.timeout(150)])])
def test_c05_memory_is_flat_over_20000_frames(source: str, long: Path) -> None:
    frames = 20_000
    what = str(long) if source == "file" else FAST[0]
    resident: dict[int, float] = {}
    with running("run", what, *PROBE, "--max-frames", str(frames), "--jsonl", "-") as process:
        assert process.stdout is not None
        statuses = [""] * frames
        for k, text in enumerate(process.stdout):
            line = json.loads(text)
            assert line["frame"] == k
            statuses[k] = line["status"] if source == "live" else f"{line['labels'][0]['id']}"
            if k in (frames // 4, frames - 500):
                resident[k] = Usage.of(process.pid).resident_mb
        assert process.wait(PATIENCE_S) == 0
    assert resident[frames - 500] - resident[frames // 4] < MORE_MB, resident
    if source == "file":
        assert statuses == [str(level(k % 100)) for k in range(frames)]
    else:
        assert set(statuses) <= {"ok", "dropped"}
        assert statuses.count("ok") > frames // 4


@pytest.mark.parametrize("source", ["file", "live"])
@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(150)])])
def test_c05_before_an_output_that_takes_ten_frames_a_second_every_queue_is_bounded(
    seconds: int, source: str, long: Path, tmp_path: Path
) -> None:
    """A file may have four batches on its way; its decoder waits. The lines have a channel and a part that is being written."""
    what, most = (str(long), 4 * 32) if source == "file" else FAST
    report = tmp_path / "report.json"
    resident: list[float] = []
    with running("run", what, *PROBE, "--jsonl", "-", "--report", str(report)) as process:
        assert process.stdout is not None
        taken = 0
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and process.stdout.readline():
            taken += 1
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
            resident.append(Usage.of(process.pid).resident_mb)
        process.send_signal(signal.SIGTERM)
        rest = sum(1 for _ in process.stdout)
        assert process.wait(PATIENCE_S) == 143
    (stream,) = json.loads(report.read_text())["streams"].values()
    assert adds_up(stream)
    assert stream["captured"] == taken + rest
    assert taken >= 5 * seconds
    assert rest <= most + CAPACITY + MOST + PIPE
    quarter = len(resident) // 4
    assert resident[-1] - resident[quarter] < MORE_MB, resident[::10]


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Without the collector, an object is freed by its last reference alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def frames_alive() -> int:
    """Decoded frames in this process, by their type: `__class__` of a lazy object may import its module."""
    return sum(issubclass(type(one), av.VideoFrame) for one in gc.get_objects())


@pytest.mark.parametrize("rotation", [0, 90])
def test_c05_a_picture_is_let_go_with_its_last_reference(rotation: Any, tmp_path: Path) -> None:
    """The garbage collector, which counts objects and not their memory, came after 600 MB of a 1080p file. One is left:
    the first of a stream, of which is read how it is turned."""
    clip = numbered(tmp_path / "num.mp4", frames=60, rotation=rotation)
    with collector_off():
        before = frames_alive()
        for capture in FileSource(clip).frames(threading.Event(), NullWatch()):
            assert capture.picture.rotation == rotation
            assert frames_alive() - before <= 4


def test_c05_pictures_that_are_each_turned_their_own_way_are_let_go_by_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(30)]
    for path in paths:
        Image.new("L", (64, 64)).save(path)
    monkeypatch.setattr(pixels, "HELD_BYTES", 5 * 64 * 64)
    with collector_off():
        before = frames_alive()
        for _ in ImagesSource(paths).frames(threading.Event(), NullWatch()):
            assert frames_alive() - before <= 8


@pytest.mark.parametrize("way", ["rtsp native", "rtsp ffmpeg", "tcp", "http"])
def test_c04_a_session_that_has_ended_is_let_go_with_its_last_reference(way: str, cameras: Cameras) -> None:
    kind, _, client = way.partition(" ")
    server, url = cameras.servers[kind], cameras.urls[kind]
    source = camera(url, f"{client} tcp") if client else NetworkSource(url, live=True)
    with collector_off():
        with contextlib.suppress(SourceError):
            for k, _ in enumerate(source.frames(threading.Event(), NullWatch())):
                if k == 5:
                    server.kill()
        del source
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        left = [one for one in gc.garbage if type(one).__module__.startswith("pipelines.")]
        frames = sum(isinstance(one, av.VideoFrame) for one in gc.garbage)
        gc.garbage.clear()
    assert left == []
    assert frames <= 1


# C14. Passwords with special characters.

PASSWORD = "p@s#s:w/%^!"


@pytest.mark.parametrize("auth", ["basic", "digest"])
@pytest.mark.parametrize("client", CLIENTS)
def test_c14_a_password_that_is_percent_encoded_is_taken_and_never_shown(
    client: str, auth: str, num: Path, tmp_path: Path
) -> None:
    need("gst-rtsp-server")
    report = tmp_path / "report.json"
    mounts = {"cam": Play(num, sound=False)}
    with RtspServer(mounts, user="u", password=PASSWORD, auth=auth) as server:  # type: ignore[arg-type]
        flags = (*PROBE, "-v", "--rtsp-client", client)
        good = watchline("run", server.url("cam"), *flags, "--max-frames", "30", "--jsonl", "-", "--report", str(report))
        wrong = watchline("run", server.url("cam", password="n0tit"), *flags)
    assert good.code == 0
    assert any(map(shown, good.lines))
    assert wrong.code == 2
    assert "401" in wrong.err
    said = good.out + good.err + wrong.out + wrong.err + report.read_text()
    for secret in (PASSWORD, "n0tit", "p%40s"):
        assert secret not in said


@pytest.mark.parametrize(
    ("where", "scheme"),
    [*(("argument", scheme) for scheme in ("rtsp", "rtsps", "http", "tcp")), ("list", "rtsp"), ("config", "rtsp")],
)
@pytest.mark.parametrize("password", [PASSWORD, "geh3im#x", "geh3im/x", "geh3im?x", "geh3im@x", "geh3im^x", "[geh3im"])
def test_c14_a_raw_special_character_is_refused_at_once_with_what_to_do(
    password: str, scheme: str, where: str, tmp_path: Path
) -> None:
    url = f"{scheme}://u:{password}@127.0.0.1:9/cam"
    (tmp_path / "a.streams").write_text(url)
    (tmp_path / "a.yaml").write_text(f"streams: {{door: {{source: {json.dumps(url)}}}}}")
    source = {"argument": [url], "list": [str(tmp_path / "a.streams")], "config": ["--config", str(tmp_path / "a.yaml")]}[where]
    began_s = time.monotonic()
    done = watchline("run", *source, *PROBE)
    assert time.monotonic() - began_s < 1
    assert done.code == 2
    assert "percent-encode the password" in done.err
    assert len(done.err.splitlines()) == 1
    for part in ("geh3im", "s:w", "p@s", "%^!"):
        assert part not in done.err


# C39. A frozen camera gives no picture twice.

FREEZE_S = 10


def test_c39_no_picture_of_a_frozen_camera_is_classified_twice(cameras: Cameras, tmp_path: Path) -> None:
    with watching(cameras.urls, tmp_path, "--read-timeout", str(LIMIT_S)) as run:
        run.until_each(lambda line: shown(line) and line["frame"] >= 20)
        cameras.each("freeze")
        frozen_s = time.monotonic()
        run.until_said("trying again", frozen_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.processes[0].wait(frozen_s + FREEZE_S - time.monotonic())
        cameras.each("thaw")
        thawed_s = time.monotonic()
        run.until_each(lambda line: shown(line) and line["session"] == 1 and line["frame"] >= 60, thawed_s)
        run.stop()
    for name, said in run.lines.items():
        assert not any(frozen_s + 0.5 < s < thawed_s for s, _ in said), name
        lines = [line for _, line in said if shown(line)]
        assert len(lines) > 30
        for a, b in pairwise(lines):
            ahead = (b["labels"][0]["id"] - a["labels"][0]["id"]) // 2 % 100
            if a["session"] == b["session"]:
                assert ahead == (b["frame"] - a["frame"]) % 100 > 0, (name, a, b)


def test_c39_the_screen_says_that_there_is_no_signal(cameras: Cameras, tmp_path: Path) -> None:
    config = tmp_path / "streams.yaml"
    config.write_text("streams:\n" + "".join(f'  {name}: {{source: "{url}"}}\n' for name, url in cameras.urls.items()))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(WATCHLINE), "run", "--config", str(config), *PROBE, "--read-timeout", str(LIMIT_S)],
        env=environ(TERM="xterm", COLUMNS="160"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    try:
        os.close(theirs)
        _until_seen(ours, *(rf"{name}\W+live" for name in cameras.urls))
        cameras.each("freeze")
        frozen_s = time.monotonic()
        _until_seen(ours, *(rf"{name}\W.{{0,12}}no signal" for name in cameras.urls))
        assert time.monotonic() - frozen_s <= LIMIT_S + 1
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _until_seen(terminal: int, *patterns: str) -> None:
    """Read from a terminal until each pattern was there."""
    seen, end_s = "", time.monotonic() + PATIENCE_S
    while not all(re.search(pattern, seen) for pattern in patterns):
        assert select.select([terminal], [], [], max(end_s - time.monotonic(), 0))[0], seen[-500:]
        seen += os.read(terminal, 65536).decode(errors="replace")
