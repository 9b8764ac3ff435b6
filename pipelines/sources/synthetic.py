"""A simulated camera: numbered pictures at a fixed rate, independent of the pipeline's speed."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipelines.errors import UsageError
from pipelines.frame import Capture, Picture, StreamInfo
from pipelines.watch import Watch

FIRST, LEVELS = 16, 220
"""All samples of frame N have the luma 16 + N mod 220, from which `--model probe` reads the frame's number."""
PATTERN = re.compile(r"synthetic:(\d+)x(\d+)@(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Width and height in pixels and frames per second of a source `synthetic:WxH@FPS`."""

    width: int
    height: int
    fps: float

    @classmethod
    def parse(cls, text: str) -> Synthetic:
        """Parse `synthetic:WxH@FPS`.

        :raises UsageError: if the text does not have this form, or a value is out of range.
        """
        match = PATTERN.fullmatch(text)
        size = [int(n) for n in match.groups()[:2]] if match else [0, 0]
        fps = float(match[3]) if match else 0.0
        if not all(2 <= n <= 8192 for n in size) or not 0 < fps <= 1000:
            raise UsageError(f"{text!r} is not a synthetic source; write synthetic:WxH@FPS, e.g. synthetic:640x360@25")
        return cls(size[0], size[1], fps)


class SyntheticSource:
    """A live source of grey pictures. Frame i is due at start + i / fps; late frames are delivered, not dropped."""

    live = True

    def __init__(self, spec: Synthetic, clock: Callable[[], float] = time.monotonic, *, start_s: float | None = None) -> None:
        """start_s: time (monotonic) of the first frame; None: immediately."""
        self._spec = spec
        self._clock = clock
        self._start_s = start_s

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        spec = self._spec
        period_s = 1 / spec.fps
        rate = Fraction(spec.fps).limit_denominator(1001)
        info = StreamInfo(time_base=Fraction(1, 90000), rate=rate)
        u, v = (np.full(((spec.height + 1) // 2, (spec.width + 1) // 2), 128, np.uint8) for _ in range(2))
        start_s, index = self._clock() if self._start_s is None else self._start_s, 0
        while not stop.wait(max(start_s + index * period_s - self._clock(), 0.0)):
            arrived_s = self._clock()
            y = np.full((spec.height, spec.width), FIRST + index % LEVELS, np.uint8)
            yield Capture(Picture(y, u, v), index * period_s, arrived_s, self._clock(), info)
            index += 1
