"""Test clips, made with PyAV: uniform grey frames with the frame's number as luma.

The luma of frame N is exactly `level(N)`, as code value (limited range, nothing expanded): 16 + 2N with the usual step.
It survives encoder and decoder, so that the mean of a decoded luma plane shows loss, repetition and order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
import numpy.typing as npt

Planes = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
SOUND_RATE = 48_000
VIDEO_OPTIONS: dict[str, dict[str, str]] = {
    "libx264": {"crf": "8", "preset": "veryfast"},
    "libx265": {"crf": "8", "preset": "ultrafast", "x265-params": "log-level=none"},
    "mpeg4": {"qmin": "1", "qmax": "1"},
}


def level(number: int, step: int = 2) -> int:
    """Luma of frame `number`, 16 to 235. It starts again after 110 frames with a step of 2, after 220 with one of 1."""
    return 16 + step * (number % (220 // step))


def number_of(luma: float, step: int = 2) -> int:
    """The frame number that a mean luma stands for (modulo the range of `level`)."""
    return round((luma - 16) / step)


def grey(luma: int, size: tuple[int, int]) -> Planes:
    """The planes of one uniform grey picture of (width, height)."""
    width, height = size
    chroma = (-(-height // 2), -(-width // 2))
    return np.full((height, width), luma, np.uint8), np.full(chroma, 128, np.uint8), np.full(chroma, 128, np.uint8)


def numbered(
    path: Path,
    *,
    frames: int = 100,
    size: tuple[int, int] = (64, 64),
    rate: Fraction | int = 25,
    first: int = 0,
    step: int = 2,
    times: Sequence[float] | None = None,
    codec: str = "libx264",
    gop: int = 25,
    b_frames: int = 0,
    rotation: Literal[0, 90, 180, 270] = 0,
    sound: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """Write a clip with luma level(first + k, step) in frame k, and return its path. The suffix is the container.

    size: (width, height). times: seconds of each frame (variable rate; ms exact) in place of `rate`. rotation: degrees
    clockwise by which a player must turn the pictures. sound: an AAC tone as long as the video.
    """
    pictures = (grey(level(first + k, step), size) for k in range(frames))
    return write(
        path,
        pictures,
        size=size,
        rate=rate,
        times=times,
        codec=codec,
        gop=gop,
        b_frames=b_frames,
        rotation=rotation,
        sound=sound,
        options=options,
    )


def write(
    path: Path,
    pictures: Iterable[Planes],
    *,
    size: tuple[int, int],
    rate: Fraction | int = 25,
    times: Sequence[float] | None = None,
    codec: str = "libx264",
    gop: int = 25,
    b_frames: int = 0,
    rotation: Literal[0, 90, 180, 270] = 0,
    sound: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """Encode yuv420p pictures into a file; see `numbered` for the rest."""
    with av.open(str(path), "w") as container:
        video = container.add_stream(codec, rate=rate, options={**VIDEO_OPTIONS.get(codec, {}), **(options or {})})
        assert isinstance(video, av.VideoStream)
        video.width, video.height = size
        video.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        tick = Fraction(1, 1000) if times is not None else 1 / Fraction(rate)
        video.codec_context.time_base = tick
        video.codec_context.gop_size = gop
        video.codec_context.max_b_frames = b_frames
        video.codec_context.thread_count = 1
        if rotation:
            video.set_display_rotation(-rotation)
        tone = _Tone(container) if sound else None
        shown = 0.0
        for k, planes in enumerate(pictures):
            frame = _frame(planes, video.pix_fmt)
            frame.time_base = tick
            frame.pts = k if times is None else round(times[k] * 1000)
            shown = float((frame.pts + (1 if times is None else 40)) * tick)
            container.mux(video.encode(frame))
            if tone is not None:
                tone.upto(shown)
        container.mux(video.encode(None))
        if tone is not None:
            tone.end()
    return path


def lumas(path: Path | str, **how: object) -> Iterator[float]:
    """Mean luma of each decoded frame of the first video stream."""
    with av.open(str(path), **how) as container:  # type: ignore[arg-type]
        for frame in container.decode(video=0):
            yield luma(frame)


def luma(frame: av.VideoFrame) -> float:
    """Mean of the luma plane's code values."""
    plane = frame.planes[0]
    return float(np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width].mean())


def _frame(planes: Planes, pix_fmt: str) -> av.VideoFrame:
    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, pix_fmt)
    for plane, values in zip(frame.planes, planes, strict=True):
        rows = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        rows[: values.shape[0], : values.shape[1]] = values
    return frame


class _Tone:
    """A 440 Hz tone in AAC that is written along with the video."""

    def __init__(self, container: av.container.OutputContainer) -> None:
        self._container = container
        stream = container.add_stream("aac", rate=SOUND_RATE, layout="mono")
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._done = 0

    def upto(self, seconds: float) -> None:
        """Write whole blocks until `seconds` is covered."""
        while self._done < seconds * SOUND_RATE:
            wave = np.sin(2 * np.pi * 440 / SOUND_RATE * (self._done + np.arange(1024))) / 4
            frame = av.AudioFrame.from_ndarray(wave.astype(np.float32)[None], "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = SOUND_RATE, self._done, Fraction(1, SOUND_RATE)
            self._container.mux(self._stream.encode(frame))
            self._done += 1024

    def end(self) -> None:
        """Write the frames that the encoder still holds."""
        self._container.mux(self._stream.encode(None))
