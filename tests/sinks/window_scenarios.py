"""Scenarios of a window under Xvfb. Run by test_window.py: `python -m tests.sinks.window_scenarios NAME`.

Each function is one scenario in a process of its own, as Qt binds to a display and to the main thread once for all. The
process plays all parts: the lanes, the main thread, and the user, with keys from xdotool.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.errors import UsageError
from pipelines.frame import Frame, Picture, StreamInfo, Trace
from pipelines.sinks.display import require_display
from pipelines.sinks.window import Window, WindowEvent
from tests.clips import grey

PATIENCE_S = 5.0
Screenshot = npt.NDArray[np.uint8]


def picture(luma: int, size: tuple[int, int] = (640, 360)) -> Picture:
    """A uniform grey picture of full range: the screen shows its luma unchanged."""
    return Picture(*grey(luma, size), full_range=True)


def frame(stream: str, shown: Picture) -> Frame:
    """A frame that carries the picture."""
    return Frame(stream, 0, 0, shown, None, StreamInfo(), Trace(0.0, 0.0))


class Fates:
    """The ends of offers, in the order of the offers. A second end of the same offer fails."""

    def __init__(self) -> None:
        self.of: list[float | str | None] = []

    def ended(self) -> Callable[[float | None], None]:
        """The callback of the next offer."""
        place = len(self.of)
        self.of.append("open")

        def note(at: float | None) -> None:
            assert self.of[place] == "open", f"offer {place} ended twice"
            self.of[place] = at

        return note

    def drawn(self) -> list[int]:
        """Numbers of the offers that were drawn."""
        return [k for k, at in enumerate(self.of) if isinstance(at, float)]


def offer(window: Window, stream: str, shown: Picture, fates: Fates) -> None:
    """Offer a picture and keep its fate."""
    window.offer(frame(stream, shown), lambda: shown, fates.ended())


def screenshot() -> Screenshot:
    """The screen of Xvfb, (H, W, 3) BGR: its frame buffer is a file in the XWD format."""
    data = Path(os.environ["XVFB_SCREEN"]).read_bytes()
    header = np.frombuffer(data, ">u4", 25)
    height, row, colours = int(header[5]), int(header[12]), int(header[19])
    pixels = np.frombuffer(data, np.uint8, height * row, int(header[0]) + 12 * colours)
    return pixels.reshape(height, row // 4, 4)[:, : int(header[4]), :3]


def await_seen(window: Window, box: tuple[int, int, int, int], low: float, high: float | None = None) -> None:
    """Process events until a part of the screen (x, y, width, height) has the mean brightness `low` +-1.5, or low-high.

    The X server paints with a delay, above all in a new window.
    """
    x, y, width, height = box
    bounds = (low - 1.5, low + 1.5) if high is None else (low, high)
    end = time.monotonic() + PATIENCE_S
    while not bounds[0] <= (mean := screenshot()[y : y + height, x : x + width].mean()) <= bounds[1]:
        assert time.monotonic() < end, f"{mean:.1f} in {box}, not {bounds}"
        window.refresh(0.02)


def until(window: Window, wanted: WindowEvent) -> float:
    """Refresh until the event comes. Returns the seconds until then."""
    began = time.monotonic()
    while window.refresh(0.1) != wanted:
        assert time.monotonic() < began + PATIENCE_S, f"no {wanted}"
    return time.monotonic() - began


def window_id(title: str) -> str:
    """The X window with this title."""
    found = subprocess.run(["xdotool", "search", "--name", f"^{re.escape(title)}$"], capture_output=True, text=True)
    return found.stdout.split()[0]


def press(title: str, key: str) -> None:
    """Press a key in the window."""
    subprocess.run(["xdotool", "key", "--window", window_id(title), key], check=True, stderr=subprocess.DEVNULL)


def press_q(title: str) -> None:
    """Press q in the window."""
    press(title, "q")


def resize(title: str, width: int, height: int) -> None:
    """Resize the window, as the user does with the mouse."""
    subprocess.run(["xdotool", "windowsize", "--sync", window_id(title), str(width), str(height)], check=True)


class _ClientMessage(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("serial", ctypes.c_ulong),
        ("send_event", ctypes.c_int),
        ("display", ctypes.c_void_p),
        ("window", ctypes.c_ulong),
        ("message_type", ctypes.c_ulong),
        ("format", ctypes.c_int),
        ("data", ctypes.c_long * 5),
        ("pad", ctypes.c_long * 24),
    )


def press_close(title: str) -> None:
    """Send WM_DELETE_WINDOW, the message of a window manager's close button. Xvfb has no window manager."""
    x = ctypes.CDLL("libX11.so.6")
    x.XOpenDisplay.restype = ctypes.c_void_p
    x.XInternAtom.restype = ctypes.c_ulong
    display = ctypes.c_void_p(x.XOpenDisplay(None))
    protocols, delete = (x.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
    target = ctypes.c_ulong(int(window_id(title)))
    data = (ctypes.c_long * 5)(delete, 0, 0, 0, 0)
    message = _ClientMessage(33, 0, 1, None, target, protocols, 32, data)
    assert x.XSendEvent(display, target, 0, 0, ctypes.byref(message))
    x.XCloseDisplay(display)


def keys() -> None:
    """q, Q and Esc quit, space pauses, other keys do nothing."""
    window = Window("keys", ["a"])
    window.refresh(0)
    for key, event in (("q", "quit"), ("space", "pause"), ("Escape", "quit"), ("Q", "quit"), ("space", "pause")):
        press("keys", key)
        assert until(window, event) < 1  # type: ignore[arg-type]
    press("keys", "x")
    assert [window.refresh(0.05) for _ in range(4)] == ["nothing"] * 4
    window.close()


def close_button() -> None:
    """Closing ends the waiting offers, and the window stays closed."""
    fates = Fates()
    window = Window("close me", ["a"])
    offer(window, "a", picture(100), fates)
    assert window.refresh(1) == "nothing"
    press_close("close me")
    assert until(window, "quit") < 1
    offer(window, "a", picture(101), fates)
    assert fates.drawn() == [0]
    assert fates.of[1] is None
    assert window.refresh(1) == "quit"
    window.close()
    window.close()
    assert subprocess.run(["xdotool", "search", "--onlyvisible", "--name", "close me"], capture_output=True).stdout == b""


def newest_wins() -> None:
    """Of many offers the last is drawn; each ends once, with the time after its draw or with None."""
    fates = Fates()
    window = Window("newest", ["a"])
    window.refresh(0)
    lane = threading.Thread(target=lambda: [offer(window, "a", picture(k), fates) for k in range(50)], name="lane:a")
    lane.start()
    lane.join()
    before = time.monotonic()
    assert window.refresh(1) == "nothing"
    assert fates.drawn() == [49]
    assert fates.of[:49] == [None] * 49
    assert isinstance(fates.of[49], float)
    assert before <= fates.of[49] <= time.monotonic()
    offer(window, "a", picture(200), fates)
    offer(window, "b", picture(200), fates)
    window.close()
    offer(window, "a", picture(200), fates)
    assert fates.of[50:] == [None] * 3


def brightness() -> None:
    """The screen shows the value that was offered, and the next one after it."""
    fates = Fates()
    window = Window("brightness – яркость 明るさ", ["a"], screen=require_display(os.environ))
    for luma in (30, 120, 210, 60):
        offer(window, "a", picture(luma), fates)
        window.refresh(1)
        await_seen(window, (20, 20, 600, 320), luma)
    window.close()
    assert fates.drawn() == [0, 1, 2, 3]


def two_streams() -> None:
    """Two tiles, in the order given; a third stream gets its own when it appears; status is written over one."""
    fates = Fates()
    window = Window("two", ["left", "right"], screen=(1280, 800))
    offer(window, "right", picture(200), fates)
    window.refresh(1)
    offer(window, "left", picture(50), fates)
    window.refresh(1)
    resize("two", 804, 300)
    window.refresh(0.1)
    await_seen(window, (20, 100, 360, 100), 50)
    await_seen(window, (424, 100, 360, 100), 200)
    window.status("right", "no signal 3 s")
    window.refresh(0.1)
    await_seen(window, (20, 100, 360, 100), 50)
    await_seen(window, (424, 100, 360, 100), 60, 130)
    window.status("right", "")
    window.refresh(0.1)
    await_seen(window, (424, 100, 360, 100), 200)
    offer(window, "late", picture(120), fates)
    window.refresh(1)
    resize("two", 1208, 300)
    window.refresh(0.1)
    await_seen(window, (828, 100, 360, 100), 120)
    window.close()
    assert fates.drawn() == [0, 1, 2]


def sizes() -> None:
    """The first picture's size within the screen, small ones enlarged, the person's own size kept, aspect honoured."""
    screen = require_display(os.environ)
    assert screen == (1280, 800)
    anamorphic = Picture(*grey(150, (360, 288)), full_range=True, sample_aspect=Fraction(16, 9))
    for shown, width, height in (
        (picture(150, (64, 64)), 320, 320),
        (picture(150, (640, 360)), 640, 360),
        (picture(150, (1920, 1080)), 1152, 648),
        (anamorphic, 640, 288),
    ):
        window, fates = Window("sizes", ["a"], screen=screen), Fates()
        offer(window, "a", shown, fates)
        window.refresh(1)
        await_seen(window, (1, 1, width - 2, height - 2), 150)
        assert screenshot()[:, width + 1 :].max() == 0
        assert screenshot()[height + 1 :].max() == 0
        window.close()
    window = Window("sizes", ["a"], screen=screen)
    window.refresh(0)
    resize("sizes", 500, 500)
    window.refresh(0.1)
    offer(window, "a", picture(150, (640, 320)), fates)
    window.refresh(1)
    await_seen(window, (5, 130, 490, 240), 150)
    await_seen(window, (5, 5, 490, 110), 0, 30)
    resize("sizes", 3, 2)
    window.refresh(0.1)
    window.close()


def twice() -> None:
    """A second window in the same process works like the first, with the same title and with another."""
    for title, leave in (("first", press_q), ("first", press_close), ("first", press_q), ("second", press_close)):
        window, fates = Window(title, ["a"]), Fates()
        offer(window, "a", picture(90), fates)
        window.refresh(1)
        await_seen(window, (20, 20, 600, 300), 90)
        leave(title)
        assert until(window, "quit") < 1
        window.close()
        assert window.refresh(1) == "quit"
        assert fates.drawn() == [0]


def share() -> None:
    """Pictures that come as fast as they can take a small share of one core; the lane never waits."""
    fates = Fates()
    window = Window("share", ["a"], screen=require_display(os.environ))
    shown = [picture(k, (1280, 720)) for k in range(50, 60)]
    window.refresh(0)
    stop = threading.Event()

    def lane() -> None:
        while not stop.wait(0.002):
            offer(window, "a", shown[len(fates.of) % 10], fates)

    thread = threading.Thread(target=lane, name="lane:a")
    thread.start()
    began, cpu = time.monotonic(), time.thread_time()
    while time.monotonic() < began + 2:
        window.refresh(0.1)
    used = (time.thread_time() - cpu) / 2
    stop.set()
    thread.join()
    window.close()
    print(f"{len(fates.of)} offered, {len(fates.drawn())} drawn, {used:.0%} of a core")
    assert "open" not in fates.of
    assert len(fates.drawn()) > 15
    assert used < 0.3


def other_thread() -> None:
    """Only the main thread may draw."""
    errors: list[BaseException] = []

    def draw() -> None:
        try:
            Window("elsewhere", ["a"]).refresh(0)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=draw, name="not-main")
    thread.start()
    thread.join()
    assert len(errors) == 1


def refused() -> None:
    """Without a usable display: an error in words."""
    try:
        require_display(os.environ)
    except UsageError as error:
        print(error)
        return
    raise AssertionError("a display was found")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
