"""C07, C16, C21, C29, C32, C33, C35, C50, C70: the HTTP service, its workers and its limits."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.serve.serve import Server
from tests.command import WATCHLINE
from tests.serve.process import children_of, command_of, descriptors, resident_mb, serving
from tests.serve.serving import JPEG, Caller, Said, encoded, form, get, grey, halves, noise, post, served, together
from tests.sources.test_encoded import TURNED, animation

pytestmark = [pytest.mark.field, pytest.mark.timeout(240)]
SAMPLES = Path(__file__).parents[2] / "samples"
PROBE = ("--model", "probe", "--workers", "1")


def spread(total: int, callers: int, url: str, one: Callable[[Caller, int], Any]) -> list[Any]:
    """one(caller, k) for each k below total, over so many kept connections; the results in order."""
    results: list[Any] = [None] * total

    def run(c: int) -> None:
        with Caller(url) as caller:
            for k in range(c, total, callers):
                results[k] = one(caller, k)

    together(callers, run)
    return results


def until(true: Callable[[], bool], limit_s: float) -> float:
    """Wait for a condition in another process. Returns the seconds."""
    began_s = time.monotonic()
    while not true():
        assert time.monotonic() < began_s + limit_s, "it did not come about"
        threading.Event().wait(0.02)
    return time.monotonic() - began_s


def ready(url: str) -> int:
    return get(url, "/ready").status


# C07: worker processes.


@pytest.mark.parametrize("command", ["module", "script", "import"])
def test_c07_workers_are_spawned_however_it_was_started(command: str) -> None:
    """Nothing of this process lives on in them: no CUDA, no thread, no lock; and its own start method stays as it is."""
    if command == "import":
        with served(workers=2) as server:
            assert post(server.url, grey(5)).label == "5"
            assert multiprocessing.get_start_method(allow_none=True) is None
            _check_spawned(os.getpid())
        return
    # The words before the module's command line are replaced.
    script = f"exec {WATCHLINE} serve --model probe --workers 2 --port 0"
    with serving(*PROBE, "--workers", "2", before=("bash", "-c", script, "--") if command == "script" else ()) as process:
        assert post(process.url, grey(5)).label == "5"
        _check_spawned(process.popen.pid)


def _check_spawned(pid: int) -> None:
    """A forked child would have its parent's command line."""
    commands = [command_of(child) for child in children_of(pid)]
    assert sum("from pipelines.predict.workers.child import main" in command for command in commands) == 2, commands
    assert not any("app.cli" in command or " serve " in command for command in commands), commands


# C16: file descriptors.


def test_c16_descriptors_stay_flat_and_the_service_outlives_their_end() -> None:
    limited = ("bash", "-c", 'ulimit -n 256; exec "$@"', "--")
    with serving(*PROBE, "--workers", "2", "--queue-depth", "20", before=limited) as process:
        pids = [process.popen.pid, *process.children()]

        def one(caller: Caller, k: int) -> int:
            return caller.post(grey(k % 256, (64, 48))).status

        assert set(spread(200, 64, process.url, one)) == {200}
        until(lambda: metric(process.url, "watchline_connections") <= 1, 10)
        before = {pid: descriptors(pid) for pid in pids}
        assert set(spread(2000, 64, process.url, one)) == {200}
        until(lambda: metric(process.url, "watchline_connections") <= 1, 10)
        assert all(abs(descriptors(pid) - before[pid]) <= 10 for pid in pids)

        idle = [_connect(process.url) for _ in range(220)]
        try:
            said = post(process.url, grey(5))
            assert (said.status, said.json["error"]) == (503, "too_many_connections")
            assert get(process.url, "/live").status == 200
            idle += [_connect(process.url) for _ in range(60)]  # more than there are descriptors for
        finally:
            for connection in idle:
                connection.close()
        until(lambda: post(process.url, grey(5)).status == 200, 10)


def _connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 10)


def metric(url: str, name: str) -> float:
    text = get(url, "/metrics").body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


# C21: memory.


@pytest.mark.parametrize("total", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_c21_memory_does_not_grow_with_requests(total: int) -> None:
    """JPEGs of 40 sizes, 16 in flight. Half a megabyte a thousand would show."""
    bodies = [encoded(noise((64 + 24 * k, 48 + 16 * k), k), quality=50) for k in range(40)]
    with serving(*PROBE, "--workers", "2") as process:
        pids = [process.popen.pid, *process.children()]

        def one(caller: Caller, k: int) -> int:
            return caller.post(bodies[k * 7 % 40]).status

        assert set(spread(2000, 16, process.url, one)) == {200}
        memory = {pid: resident_mb(pid) for pid in pids}
        open_before = {pid: descriptors(pid) for pid in pids}
        assert set(spread(total - 2000, 16, process.url, one)) == {200}
        for pid in pids:
            assert resident_mb(pid) < 1.05 * memory[pid] + 2, (pid, memory[pid], resident_mb(pid))
            assert abs(descriptors(pid) - open_before[pid]) <= 16
        assert metric(process.url, "watchline_held_bytes") == 0


# C29: each caller gets its own answer.


def test_c29_everybody_gets_the_answer_to_his_own_picture() -> None:
    levels = [7 * k + 3 for k in range(32)]
    bodies = [grey(level) for level in levels]
    with served(workers=2, max_batch=8) as server:

        def one(caller: Caller, k: int) -> tuple[str, int]:
            said = caller.post(bodies[k % 32])
            return said.label, said.json["batch"]["size"]

        results = spread(5000, 32, server.url, one)
    assert [label for label, _ in results] == [str(levels[k % 32]) for k in range(5000)]
    assert max(size for _, size in results) > 1


# C32: a bad picture among good ones.


@pytest.mark.parametrize("bad", [0, 8, 15], ids=["first", "middle", "last"])
def test_c32_one_bad_picture_fails_alone(bad: int) -> None:
    photo = (SAMPLES / "photos/home.jpg").read_bytes()
    with served(batching="fixed", max_batch=15, max_wait_ms=200) as server:
        bodies = [grey(10 * k) for k in range(16)]
        bodies[bad] = photo[:2000]
        said = together(16, lambda k: post(server.url, bodies[k]))
        many = post(server.url, *form([(str(k), body) for k, body in enumerate(bodies)]))
    _check_all_but(bad, [s.status for s in said], [s.json for s in said])
    results = many.json["results"]
    _check_all_but(bad, [r.get("status", 200) for r in results], results)


def _check_all_but(bad: int, statuses: list[int], answers: list[Any]) -> None:
    for k, (status, answer) in enumerate(zip(statuses, answers, strict=True)):
        if k == bad:
            assert (status, answer["error"]) == (400, "undecodable")
        else:
            assert (status, answer["labels"][0]["id"]) == (200, 10 * k)


# C33: workers that die or hang.


class Load:
    """Callers that ask without a pause until they are told to stop. `answers`: when each ended, its status, its seconds."""

    def __init__(self, url: str, callers: int) -> None:
        self.answers: list[tuple[float, int, float]] = []
        self.errors: list[BaseException] = []
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"load:{k}") for k in range(callers)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            with Caller(self._url) as caller:
                while not self._stop.is_set():
                    began_s = time.monotonic()
                    said = caller.post(grey(77))
                    now = time.monotonic()
                    self.answers.append((now, said.status, now - began_s))
                    if said.status == 200:
                        assert said.json["labels"][0]["id"] == 77
                    else:
                        self._stop.wait(0.02)
        except BaseException as error:
            self.errors.append(error)

    def good(self, since_s: float) -> int:
        return sum(status == 200 for at, status, _ in self.answers if at >= since_s)


TEN_MS = (*PROBE, "--probe-ms-per-batch", "10", "--max-batch", "4", "--workers", "2", "--request-timeout", "3")


def test_c33_a_worker_that_is_killed_costs_nobody_an_answer() -> None:
    with serving(*TEN_MS) as process, Load(process.url, 8) as load:
        until(lambda: load.good(0) > 50, 20)
        victim = process.children()[0]
        os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        until(lambda: len(process.children()) == 2 and victim not in process.children() and ready(process.url) == 200, 15)
        until(lambda: load.good(killed_s) > 100, 15)
    assert load.errors == []
    assert {status for _, status, _ in load.answers} <= {200, 500, 503}
    assert all(took_s < 2.0 for _, status, took_s in load.answers if status != 200)
    assert sum(status == 500 for _, status, _ in load.answers) <= 4  # the requests in flight are run once more


def test_c33_a_worker_that_hangs_is_replaced() -> None:
    with serving(*TEN_MS) as process, Load(process.url, 8) as load:
        until(lambda: load.good(0) > 50, 20)
        victim = process.children()[0]
        os.kill(victim, signal.SIGSTOP)
        until(lambda: victim not in process.children() and ready(process.url) == 200, 20)
        back_s = time.monotonic()
        until(lambda: load.good(back_s) > 100, 15)
        assert metric(process.url, "watchline_worker_restarts_total") == 1
    assert load.errors == []
    assert {status for _, status, _ in load.answers} <= {200, 500, 503, 504}
    assert max(took_s for _, _, took_s in load.answers) < 3 + 1


def test_c33_all_workers_are_killed_and_come_back() -> None:
    with serving(*TEN_MS) as process, Load(process.url, 8) as load:
        until(lambda: load.good(0) > 50, 20)
        for victim in process.children():
            os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        until(lambda: load.good(killed_s) > 100 and ready(process.url) == 200, 20)
    assert load.errors == []
    assert {status for _, status, _ in load.answers} <= {200, 500, 503}


def test_c33_too_many_deaths_are_said_and_no_further_worker_is_started() -> None:
    with serving(*PROBE) as process:
        for _ in range(6):
            until(lambda: bool(process.children()) and ready(process.url) == 200, 20)
            os.kill(process.children()[0], signal.SIGKILL)
            until(lambda: ready(process.url) == 503, 10)
        assert "no further one is started" in process.until("were replaced within 60 s")
        for _ in range(20):  # longer than a service needs to end
            said = post(process.url, grey(1))
            assert said.status == 503
            assert 20 < int(said.headers["retry-after"]) <= 61, "not before another worker is started"
            threading.Event().wait(0.1)
        assert (get(process.url, "/live").status, get(process.url, "/ready").json["state"]) == (200, "failed")
        assert process.end(signal.SIGTERM) < 5


# C35: the event loop.


@pytest.mark.parametrize("seconds", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_c35_probes_are_answered_under_load(seconds: int) -> None:
    """64 callers with pictures of 3840x2160; a loop that decoded or inferred would be away for 50 to 500 ms at a time."""
    photo = encoded(Image.new("RGB", (3840, 2160), (90, 120, 40)), quality=85)
    flags = (*PROBE, "--probe-ms-per-batch", "500", "--request-timeout", "10")
    stop = threading.Event()
    statuses: list[int] = []

    def call(url: str) -> None:
        with Caller(url) as caller:
            while not stop.is_set():
                statuses.append(caller.post(photo).status)
                stop.wait(0.0 if statuses[-1] == 200 else 0.5)

    with serving(*flags) as process:
        threads = [threading.Thread(target=call, args=(process.url,)) for _ in range(64)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: statuses.count(200) > 0, 20)
            times_s = sorted(_polled(process.url, seconds))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert set(statuses) <= {200, 503, 504}
    assert times_s[len(times_s) // 2] < 0.1
    assert times_s[int(0.9 * len(times_s))] < 0.4  # beside 64 callers and other programs on the same cores


def _polled(url: str, seconds: float) -> Iterator[float]:
    tick = threading.Event()
    with Caller(url) as caller:
        for _ in range(int(seconds * 10)):
            began_s = time.monotonic()
            assert caller.ask("GET", "/ready").status == 200
            yield time.monotonic() - began_s
            tick.wait(0.1)


# C50: uploads of people.


MODES = ["L", "LA", "P", "RGBA", "CMYK", "I;16", "1", "RGB"]


@pytest.fixture(scope="module")
def probe() -> Iterator[Server]:
    with served() as server:
        yield server


def in_mode(mode: str) -> Image.Image:
    """Left half red, right half blue, as far as the mode goes."""
    picture = Image.fromarray(halves())
    if mode == "I;16":
        return Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
    return picture.convert(mode, dither=Image.Dither.NONE) if mode == "1" else picture.convert(mode)


@pytest.mark.parametrize("mode", MODES)
def test_c50_every_mode_is_read(probe: Server, mode: str) -> None:
    data = encoded(in_mode(mode), "JPEG" if mode == "CMYK" else "PNG")
    kind = "image/jpeg" if mode == "CMYK" else "image/png"
    wanted = 0 if mode == "1" else (76 + 29) / 2  # of red and blue
    assert abs(int(post(probe.url, data, {"Content-Type": kind}).label) - wanted) <= 1.5


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_c50_the_first_picture_of_an_animation_counts(probe: Server, format: str) -> None:
    said = post(probe.url, animation(format), {"Content-Type": f"image/{format.lower()}"})
    assert abs(int(said.label) - 53) <= 2


def test_c50_transparent_is_white_and_16_bits_are_scaled(probe: Server) -> None:
    clear = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
    assert post(probe.url, encoded(clear, "PNG"), {"Content-Type": "image/png"}).label == "255"
    wide = Image.fromarray(np.full((48, 64), 0x4000, np.uint16))
    assert post(probe.url, encoded(wide, "PNG"), {"Content-Type": "image/png"}).label == "64"


@pytest.mark.usefixtures("first_use")
def test_c50_turned_photos_have_the_same_label() -> None:
    photo = Image.open(SAMPLES / "photos/squirrel_cls.jpg")
    with served(model={"model": "lite0", "precision": "fp32"}) as server:
        plain = post(server.url, encoded(photo, quality=95))
        assert plain.label == "fox squirrel"
        for orientation, way in TURNED.items():
            exif = Image.Exif()
            exif[0x112] = orientation
            turned = photo.transpose(way) if way is not None else photo
            said = post(server.url, encoded(turned, exif=exif, quality=95))
            assert said.label == "fox squirrel", orientation
            assert abs(said.json["labels"][0]["p"] - plain.json["labels"][0]["p"]) < 0.1, orientation
        for exif_bytes in (b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff"):
            assert post(server.url, encoded(photo, exif=exif_bytes, quality=95)).label == "fox squirrel"
        for mode in ("L", "RGBA", "P", "CMYK"):
            how = ("JPEG", "image/jpeg") if mode == "CMYK" else ("PNG", "image/png")
            assert post(server.url, encoded(photo.convert(mode), how[0]), {"Content-Type": how[1]}).status == 200
    photo.close()


def test_c50_bombs_are_refused_before_they_are_unpacked(probe: Server) -> None:
    """A header of a hundred bytes may announce any size."""
    data = bytearray(encoded(Image.new("L", (16, 16)), "PNG"))
    data[16:24] = struct.pack(">II", 60_000, 60_000)
    before = resident_mb(os.getpid())
    assert post(probe.url, bytes(data), {"Content-Type": "image/png"}).status == 413
    assert resident_mb(os.getpid()) - before < 20


# C70: many pictures in a request.


def test_c70_a_request_of_many_rides_in_several_batches() -> None:
    def results(said: Said) -> list[dict[str, Any]]:
        assert said.status == 200
        found: list[dict[str, Any]] = said.json["results"]
        return found

    with served(max_batch=32, max_wait_ms=20, batching="fixed", model={"probe_ms_per_batch": 5.0}) as server:
        forty = results(post(server.url, *form([(str(k), grey(5 * k)) for k in range(40)])))
        assert [r["labels"][0]["id"] for r in forty] == [5 * k for k in range(40)]
        eight = together(8, lambda c: results(post(server.url, *form([("p", grey(10 * c + k)) for k in range(10)]))))
        for c, found in enumerate(eight):
            assert [r["labels"][0]["id"] for r in found] == [10 * c + k for k in range(10)]
        assert max(r["batch"]["size"] for r in (*forty, *itertools.chain(*eight))) <= 32
        text = get(server.url, "/metrics").body.decode()
        counts = [float(line.split()[1]) for line in text.splitlines() if line.startswith('watchline_batch_size_bucket{le="')]
        assert counts[7] == counts[-1]  # none larger than 32
        assert post(server.url, *form([])).status == 400
        assert post(server.url, b"", JPEG).status == 400
