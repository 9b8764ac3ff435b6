"""The data of one frame: Picture, Region, Frame, Answer, Prediction, Result, and the Trace of its time stamps.

All times named `_s` are seconds as float. Except `pts_s` and `captured_s` they are `time.monotonic()`; latency is computed
from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipelines.choices import Fit

Plane = npt.NDArray[np.uint8]
Matrix = Literal["bt601", "bt709", "bt2020", "fcc", "smpte240m"]
Cause = Literal["overload", "deadline", "corrupt", "skipped", "shutdown"]
CAUSES: tuple[Cause, ...] = ("overload", "deadline", "corrupt", "skipped", "shutdown")
CameraClock = Literal["same host", "trusted", "not compared"]
Status = Literal["ok", "dropped", "failed"]
Box = tuple[float, float, float, float]
"""(x0, y0, x1, y1): left, top, right and bottom edge as fractions of the upright picture, 0-1."""
WHOLE = "frame"
"""The name of the region that is the whole frame."""
DEFAULT_RATE = Fraction(25)
"""Frames per second of a stream that names no rate."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded picture: the decoder's own yuv420p planes and the facts to read them.

    y: (H, W) uint8 luma; u, v: (ceil(H/2), ceil(W/2)) uint8 chroma. Rows may have padding behind them (any stride).
    The planes have no owner: several threads read them and none writes; the last reference frees them.
    """

    y: Plane
    u: Plane
    v: Plane
    matrix: Matrix = "bt601"
    full_range: bool = False
    """True: 0-255 (JPEG); False: luma 16-235 (MPEG)."""
    rotation: Literal[0, 90, 180, 270] = 0
    """Degrees clockwise by which the planes must be turned to stand upright."""
    mirrored: bool = False
    """Whether left and right are swapped, after the turn."""
    sample_aspect: Fraction = Fraction(1)
    """Width of a stored sample over its height, before the turn."""

    @property
    def height(self) -> int:
        """Stored rows, before the turn."""
        return self.y.shape[0]

    @property
    def width(self) -> int:
        """Stored columns, before the turn."""
        return self.y.shape[1]

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) in samples after the turn."""
        w, h = self.width, self.height
        return (h, w) if self.rotation in (90, 270) else (w, h)

    @property
    def upright_aspect(self) -> Fraction:
        """Sample aspect after the turn."""
        return 1 / self.sample_aspect if self.rotation in (90, 270) else self.sample_aspect

    def upright(self) -> tuple[Plane, Plane, Plane]:
        """The three planes turned upright, as views: nothing is copied."""
        return upright(self.y, self), upright(self.u, self), upright(self.v, self)


def upright(plane: npt.NDArray[np.uint8], picture: Picture) -> npt.NDArray[np.uint8]:
    """A view of `plane` (..., H, W) turned as `picture` says."""
    turned = np.rot90(plane, -picture.rotation // 90, axes=(-2, -1)) if picture.rotation else plane
    return turned[..., ::-1] if picture.mirrored else turned


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The container's description of a stream. Hints for progress and outputs only: headers lie."""

    time_base: Fraction | None = None
    rate: Fraction | None = None
    """Average frames per second."""
    frames: int | None = None
    duration_s: float | None = None
    sound: str | None = None
    """The file with the sound of this stream."""
    file: str | None = None
    """The name of the file if each picture is a file of its own, shortened as far as it stays unique in its stream."""
    camera_clock: CameraClock = "not compared"
    """Whether the camera's own times can be compared with this machine's wall clock, and the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """One picture of a source, in presentation order. The lane makes it a numbered `Frame`."""

    picture: Picture
    pts_s: float | None
    """Media time since the session's first frame; None if the source gives none."""
    arrived_s: float
    """The time at which the demuxer gave the packet after which the decoder released this picture."""
    decoded_s: float
    info: StreamInfo
    corrupt: bool = False
    interlaced: bool = False
    """Whether the picture shows two moments, one on every second line."""
    session: int = 0
    captured_s: float | None = None
    """The camera's own wall clock when it took the picture (seconds since 1970, UTC); None if it sends none."""


@dataclass(slots=True)
class Trace:
    """Time stamps of one frame, `time.monotonic()`, in the order in which they are set; None: not reached.

    Each stamp has one writer: source, scheduler, predictor, completion, lane, in that order.
    """

    arrived_s: float
    decoded_s: float
    taken_s: float | None = None
    """The scheduler put the frame's last rows into a batch."""
    staged_s: float | None = None
    """The model input of that batch was ready."""
    inferred_s: float | None = None
    picked_s: float | None = None
    """The lane took the result."""
    rendered_s: float | None = None
    shown_s: float | None = None
    """Every required sink has accepted the frame and the lossy ones were offered it; after the draw if the window drew it."""

    def stages(self) -> dict[str, float]:
        """Seconds of each stage of a shown frame; they add up to "total".

        Both waits, for the device and for the lane, count as "queue".
        """
        a, d, t, s, i, p, r, e = (
            self.arrived_s,
            self.decoded_s,
            self.taken_s,
            self.staged_s,
            self.inferred_s,
            self.picked_s,
            self.rendered_s,
            self.shown_s,
        )
        if t is None or s is None or i is None or p is None or r is None or e is None:
            raise ValueError(f"stages() needs a shown frame, got {self}")
        return {
            "decode": d - a,
            "queue": (t - d) + (p - i),
            "preprocess": s - t,
            "infer": i - s,
            "render": r - p,
            "sink": e - r,
            "total": e - a,
        }


STAGES = ("decode", "queue", "preprocess", "infer", "render", "sink", "total")


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a frame that the model answers for: one row of a batch.

    :raises ValueError: if the box is empty or not inside the picture, or the limit is less than 1.
    """

    name: str = WHOLE
    """The key of its answer in `Prediction.answers`; unique within a frame."""
    box: Box | None = None
    """None: the whole picture."""
    fit: Fit | None = None
    """None: the model's own fit for the whole picture, "squash" for a box."""
    limit: int | None = None
    """The most entries of the answer (labels of a classification); None: the task's own limit."""

    def __post_init__(self) -> None:
        if self.box is not None:
            x0, y0, x1, y1 = self.box
            if not (0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1):
                allowed = "(x0, y0, x1, y1) with 0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1"
                raise ValueError(f"region {self.name!r}: a box is {allowed}, got {self.box}")
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"region {self.name!r}: the limit must be at least 1, got {self.limit}")


WHOLE_FRAME = (Region(),)
"""The regions of a frame that asks for the whole picture alone."""


@dataclass(slots=True, eq=False)
class Frame:
    """One captured picture. `index` counts the stream's captured frames from 0, across sessions and loops."""

    stream: str
    session: int
    index: int
    picture: Picture
    pts_s: float | None
    info: StreamInfo
    trace: Trace
    captured_s: float | None = None
    """See `Capture`."""
    regions: tuple[Region, ...] = WHOLE_FRAME
    """The parts of the picture that the model answers for, one row of a batch each. Without any, the frame is answered at
    once, with no answers."""

    def let_go(self) -> None:
        """Free the planes of a frame that will not be shown, before its turn in the stream's order has come."""
        self.picture = NOTHING


NOTHING = Picture(np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.uint8))
"""Replaces the picture of a frame after `let_go`."""


class Answer:
    """The base class of the answers of all tasks. An answer belongs to one region and is a frozen dataclass. `str(answer)` is
    a short text for people."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answers of one frame, and the batch that its last row was in."""

    answers: Mapping[str, Answer]
    """By the name of the region."""
    batch_id: int
    """Counts the batches of a predictor from 1; 0 if no row was run."""
    batch_size: int
    """Rows of that batch; 0 if no row was run."""

    @property
    def answer(self) -> Answer:
        """The answer for the whole frame.

        :raises KeyError: if the frame did not ask for it.
        """
        return self.answers[WHOLE]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The end of a captured frame. Exactly one exists for each captured frame."""

    frame: Frame
    status: Status
    prediction: Prediction | None = None
    cause: Cause | None = None
    """Why the frame was dropped; None unless status is "dropped"."""
    error: BaseException | None = field(default=None)

    def __str__(self) -> str:
        """One line for people: stream, frame, and the answers or the reason why there are none."""
        why = self.cause if self.error is None else self.error
        text = f"{self.status}{f' ({why})' if why else ''}" if self.prediction is None else _answers(self.prediction)
        return f"{self.frame.stream} {self.frame.index}: {text}"


def _answers(prediction: Prediction) -> str:
    whole = list(prediction.answers) == [WHOLE]
    return "; ".join(str(answer) if whole else f"{name} {answer}" for name, answer in prediction.answers.items())
