"""The window under a real X server (Xvfb), and the errors without one. The scenarios stand in window_scenarios.py."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pipelines.frame import Picture
from pipelines.sinks.display import display_there, require_display
from pipelines.sinks.mosaic import Mosaic, cells, columns_for, first_size
from tests.clips import grey
from tests.display import Environ, start_xvfb, without_display
from tests.system import need

ROOT = Path(__file__).parents[2]


def play(scenario: str, environ: Environ) -> str:
    """Run a scenario in a process of its own. Returns its standard output."""
    command = [sys.executable, "-m", "tests.sinks.window_scenarios", scenario]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"rc {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "scenario",
    [
        "keys",
        "close_button",
        "newest_wins",
        "brightness",
        "two_streams",
        "sizes",
        "twice",
        "share",
        "other_thread",
    ],
)
def test_window(display: Environ, scenario: str) -> None:
    play(scenario, display)


def test_display_is_found(display: Environ) -> None:
    assert display_there(display)
    assert require_display(display) == (1280, 800)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ["DISPLAY is not set"]),
        ({"DISPLAY": ""}, ["DISPLAY is not set"]),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ["DISPLAY is not set", "Xwayland"]),
        ({"DISPLAY": ":77"}, ["DISPLAY=:77"]),
        ({"DISPLAY": "127.0.0.1:77"}, ["DISPLAY=127.0.0.1:77"]),
        ({"DISPLAY": "localhost:99999"}, ["DISPLAY=localhost:99999"]),
        ({"DISPLAY": "nonsense"}, ["DISPLAY=nonsense"]),
        ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, ["QT_QPA_PLATFORM"]),
    ],
)
def test_no_display_is_said_and_nothing_aborts(more: Environ, words: list[str]) -> None:
    environ = without_display(**more)
    said = play("refused", environ)
    assert said.count("\n") == 1
    for word in ("`show`", "DISPLAY", *words):
        assert word in said
    assert not display_there(environ)


def test_a_server_that_is_no_x_server() -> None:
    """Another server listens on the port, and its answer is not X11."""
    with socket.socket() as listener:
        number = next(n for n in range(100, 200) if _binds(listener, 6000 + n))
        listener.listen()
        thread = threading.Thread(target=_answer_http, args=(listener,), name="no-x-server")
        thread.start()
        assert not display_there({"DISPLAY": f"127.0.0.1:{number}"})
        thread.join()


def _binds(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _answer_http(listener: socket.socket) -> None:
    client = listener.accept()[0]
    with client:
        client.recv(100)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_the_cookie_decides(tmp_path: Path) -> None:
    """A server that wants a cookie: with the right file, with a wrong one, and with none."""
    need("Xvfb", "xauth")
    secret, wrong = "0123456789abcdef" * 2, "f" * 32
    for name, key in (("server", secret), ("right", secret), ("wrong", wrong)):
        _write_cookie(tmp_path / name, f"{socket.gethostname()}/unix:", key)
    server, name = start_xvfb(tmp_path, "-auth", str(tmp_path / "server"))
    try:
        for file, there in (("right", True), ("wrong", False), ("none", False)):
            environ = without_display(DISPLAY=name, XAUTHORITY=str(tmp_path / file))
            assert display_there(environ) is there, file
        assert "refuses" in play("refused", without_display(DISPLAY=name, XAUTHORITY=str(tmp_path / "wrong")))
    finally:
        server.terminate()
        server.wait()


def _write_cookie(path: Path, host: str, key: str) -> None:
    """One entry for every display number that Xvfb could take."""
    path.touch()
    lines = "".join(f"add {host}{n} . {key}\n" for n in range(120))
    subprocess.run(["xauth", "-q", "-f", str(path), "source", "-"], input=lines, text=True, check=True)


class TestMosaic:
    @pytest.mark.parametrize(
        ("count", "size", "columns"),
        [(1, (640, 360), 1), (2, (1280, 360), 2), (2, (360, 640), 1), (4, (1280, 720), 2), (9, (1280, 720), 3)],
    )
    def test_tiles_are_as_large_as_they_can_be(self, count: int, size: tuple[int, int], columns: int) -> None:
        assert columns_for(count, size, Fraction(16, 9)) == columns

    @pytest.mark.parametrize(
        ("count", "size"),
        [*((n, (1280, 720)) for n in (1, 2, 5, 9, 21)), *((n, (333, 777)) for n in (3, 7, 21)), (21, (20, 5)), (4, (1, 1))],
    )
    def test_cells_do_not_overlap(self, count: int, size: tuple[int, int]) -> None:
        places = cells(count, size, Fraction(4, 3))
        if min(size) > 20:
            covered = np.zeros((size[1], size[0]), int)
            for cell in places:
                part = covered[cell.y : cell.y + cell.height, cell.x : cell.x + cell.width]
                assert part.shape == (cell.height, cell.width)
                part += 1
            assert covered.max() == 1
        mosaic = Mosaic()
        mosaic.resize(size)
        for k in range(count):
            mosaic.show(f"s{k}", Picture(*grey(100, (32, 24))))
        assert mosaic.draw()
        assert not mosaic.draw()

    @pytest.mark.parametrize(
        ("count", "shown", "expected"),
        [
            (1, (64, 64), (320, 320)),
            (1, (1280, 720), (1152, 648)),
            (1, (640, 360), (640, 360)),
            (1, (100, 4000), (18, 720)),
            (4, (1280, 720), (1152, 648)),
        ],
    )
    def test_first_size(self, count: int, shown: tuple[int, int], expected: tuple[int, int]) -> None:
        assert first_size(count, shown, (1280, 800)) == pytest.approx(expected, abs=3)

    @pytest.mark.parametrize(
        ("matrix", "full_range", "yuv", "rgb"),
        [
            ("bt601", False, (81, 90, 240), (255, 0, 0)),
            ("bt601", True, (76, 85, 255), (254, 0, 0)),
            ("bt709", False, (63, 102, 240), (255, 0, 0)),
            ("bt709", True, (54, 99, 255), (254, 0, 0)),
            ("bt2020", False, (74, 97, 240), (255, 0, 0)),
            ("bt709", False, (126, 128, 128), (128, 128, 128)),
        ],
    )
    @pytest.mark.parametrize("size", [(64, 48), (40, 30), (160, 120)])
    def test_colours(
        self, matrix: str, full_range: bool, yuv: tuple[int, ...], rgb: tuple[int, ...], size: tuple[int, int]
    ) -> None:
        y, u, v = (np.full((48, 64) if k == 0 else (24, 32), value, np.uint8) for k, value in enumerate(yuv))
        mosaic = Mosaic()
        mosaic.resize(size)
        mosaic.show("a", Picture(y, u, v, matrix, full_range))  # type: ignore[arg-type]
        mosaic.draw()
        assert np.abs(mosaic.canvas.astype(int)[..., ::-1] - rgb).max() <= 4

    def test_a_turned_odd_read_only_picture(self) -> None:
        y, u, v = grey(100, (33, 17))
        y[:, :16] = 200
        for plane in (y, u, v):
            plane.flags.writeable = False
        mosaic = Mosaic()
        mosaic.resize((160, 320))
        mosaic.show("a", Picture(y, u, v, full_range=True, rotation=90))
        mosaic.draw()
        assert mosaic.canvas[10:150].mean() == pytest.approx(200, abs=2)
        assert mosaic.canvas[170:310].mean() == pytest.approx(100, abs=2)
