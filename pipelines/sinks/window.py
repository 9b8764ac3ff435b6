"""One window for the pictures of all streams, drawn by the main thread. (`display` finds out whether a window is possible.)

Lanes leave their pictures in a mailbox of one per stream. The main thread takes the waiting pictures, draws them and lets
OpenCV handle its events; Qt wants all of that in one thread. Drawing gets a bounded share of a core, at most one eighth: the
window does not slow a file that runs at 500 frames/s, and a camera's pictures are drawn when they come.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

import cv2

from pipelines.frame import Frame, Picture
from pipelines.sinks.display import mend_toolkit
from pipelines.sinks.mosaic import Mosaic, Size, first_size, shown_size
from pipelines.sinks.sink import Look

WindowEvent = Literal["nothing", "quit", "pause"]
"""An action of the person: quit is q, Esc or the window's close button; pause is the space bar, to stop or to go on."""

PUMP_S = 0.02
"""Events are handled at least this often: a window that does not answer for longer feels stuck."""
REST = 7
"""After a draw the window rests for so many times the CPU time of that draw."""
REST_S = 0.05
"""The longest rest, on a slow machine."""
KEYS: dict[int, WindowEvent] = {ord("q"): "quit", ord("Q"): "quit", 27: "quit", ord(" "): "pause"}
# Without KEEPRATIO: the mosaic keeps the aspect of every tile itself, and Qt then tells the size of the whole window.
FLAGS = cv2.WINDOW_NORMAL | cv2.WINDOW_FREERATIO | cv2.WINDOW_GUI_NORMAL
EMPTY: Size = (640, 360)
"""Assumed size of a picture until the first one comes."""

Ended = Callable[[float | None], None]
"""Called once for each offered picture: with the time after its draw (monotonic), or None if it was not drawn."""


class Window:
    """A `Screen` with a tile for each stream. `offer`, `status`, `forget`: any thread; all else: the main thread only."""

    def __init__(
        self,
        title: str,
        streams: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
        *,
        screen: Size = (1280, 720),
    ) -> None:
        """streams: names in the order of their tiles; other streams get a tile with their first picture. screen: size of the
        display."""
        self._title = title
        self._clock = clock
        self._screen = screen
        self._mosaic = Mosaic()
        self._sized: Size | None = None
        self._fitted = False
        self._rest_until = 0.0
        self._changed = threading.Condition()
        self._mail: dict[str, tuple[Look, Ended]] = {}
        self._drawing: list[Ended] = []
        """Callbacks of the pictures that are being drawn. Main thread only."""
        self._notes = dict.fromkeys(streams, "")
        self._gone: set[str] = set()
        """Streams that were removed and have offered nothing since."""
        self._closed = False

    def offer(self, frame: Frame, look: Look, ended: Ended) -> None:
        """Leave a picture for the next draw. Never blocks; see `Screen`."""
        with self._changed:
            if self._closed:
                displaced: Ended | None = ended
            else:
                displaced = self._mail[frame.stream][1] if frame.stream in self._mail else None
                self._mail[frame.stream] = look, ended
                self._gone.discard(frame.stream)
                self._changed.notify()
        if displaced is not None:
            displaced(None)

    def status(self, stream: str, text: str) -> None:
        """Write `text`, such as "no signal 3 s", over the stream's tile until another is given; "" takes it away."""
        with self._changed:
            if stream not in self._gone:
                self._notes[stream] = text  # seen at the next pump

    def forget(self, stream: str) -> None:
        """Take the stream's tile away at the next draw."""
        with self._changed:
            _, displaced = self._mail.pop(stream, (None, None))
            self._notes.pop(stream, None)
            self._gone.add(stream)
            self._changed.notify()
        if displaced is not None:
            displaced(None)

    def refresh(self, wait_s: float) -> WindowEvent:
        """Draw the waiting pictures, waiting up to `wait_s` for the first one, and return the person's action.

        Returns after a draw, an action of the person, or `wait_s`. Once the window is gone: "quit", at once.
        """
        _check_thread()
        end = self._clock() + wait_s
        while not self._closed:
            drew, event = self._step(end)
            if drew or event != "nothing" or self._clock() >= end:
                return event
        return "quit"

    def close(self) -> None:
        """Destroy the window; pictures that were not drawn end with None. Closing twice is fine."""
        _check_thread()
        if self._sized is not None:
            self._sized = None
            with contextlib.suppress(cv2.error):  # the person may have closed it
                cv2.destroyWindow(self._title)
                cv2.pollKey()
        self._shut()

    def lost(self) -> None:
        """The display is gone: end the waiting pictures with None, and make no further call to the window."""
        self._sized = None
        self._shut()

    def _shut(self) -> None:
        """Take no more pictures, and end those that were not drawn with None. Qt may end the process within a draw."""
        with self._changed:
            self._closed = True
            left = [*self._drawing, *(ended for _, ended in self._mail.values())]
            self._mail.clear()
            self._drawing.clear()
        for ended in left:
            ended(None)

    def _step(self, end: float) -> tuple[bool, WindowEvent]:
        """One round: wait a little, draw, handle events. True: something new was drawn."""
        mail, notes = self._take(end)
        drawn: float | None = None
        began = time.thread_time()
        self._drawing = [ended for _, ended in mail.values()]
        try:
            self._draw(mail, notes)
            key = cv2.pollKey()  # here Qt paints
            drawn = self._clock()
        finally:
            drawing, self._drawing = self._drawing, []
            for ended in drawing:
                ended(drawn)
        if mail and drawn is not None:
            self._rest_until = drawn + min(REST * (time.thread_time() - began), REST_S)
        if not self._visible():
            self._shut()
            return bool(mail), "quit"
        return bool(mail), KEYS.get(key, "nothing")

    def _take(self, end: float) -> tuple[dict[str, tuple[Look, Ended]], dict[str, str]]:
        """The waiting pictures, if any comes before the next pump and drawing is allowed; and all notes."""
        now = self._clock()
        pump = min(now + PUMP_S, end)
        rest = min(self._rest_until, pump) - now
        if rest > 0:
            time.sleep(rest)  # not on the condition: every picture of a fast file would wake us
        with self._changed:
            if self._sized is not None:  # the first round opens the window at once
                self._changed.wait_for(lambda: self._mail or self._closed, max(pump - self._clock(), 0))
            if self._clock() < self._rest_until:
                return {}, dict(self._notes)
            mail, self._mail = self._mail, {}
            return mail, dict(self._notes)

    def _draw(self, mail: dict[str, tuple[Look, Ended]], notes: dict[str, str]) -> None:
        for stream, text in notes.items():
            self._mosaic.note(stream, text)
        pictures = {stream: look() for stream, (look, _) in mail.items()}
        for stream, picture in pictures.items():
            self._mosaic.show(stream, picture)
        with self._changed:
            gone = list(self._gone)
        for stream in gone:
            self._mosaic.remove(stream)
        self._fit(next(iter(pictures.values()), None))
        if self._mosaic.draw():
            cv2.imshow(self._title, self._mosaic.canvas)

    def _fit(self, first: Picture | None) -> None:
        """Open the window, give it the first picture's size unless the person already gave it one, and follow it."""
        if self._sized is None:
            mend_toolkit()
            cv2.namedWindow(self._title, FLAGS)
            self._resize(EMPTY)
        now = self._size()
        if first is not None and not self._fitted:
            self._fitted = True
            if now == self._sized:
                self._resize(shown_size(first))
                now = self._sized
        self._mosaic.resize(now)

    def _resize(self, shown: Size) -> None:
        self._sized = first_size(max(len(self._mosaic), 1), shown, self._screen)
        cv2.resizeWindow(self._title, *self._sized)

    def _visible(self) -> bool:
        try:
            return bool(cv2.getWindowProperty(self._title, cv2.WND_PROP_VISIBLE) >= 1)
        except cv2.error:  # so it answers once the last window is closed
            return False

    def _size(self) -> Size:
        _, _, width, height = cv2.getWindowImageRect(self._title)
        return max(width, 1), max(height, 1)


def _check_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the window belongs to the main thread")
