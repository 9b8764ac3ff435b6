"""How many threads each library gets, and why. They share the cores: what one library takes for itself, the others wait for.

The numbers stand where the parts are made; here they are put together for people, and OpenCV's, which nobody makes, is set.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2

from pipelines.cores import cores, share

ROWS = "each waits for rows of the picture before"
OPENCV = 1
"""Of OpenCV, which draws: by itself it would wake a pool of all cores for each larger area, in the middle of an inference."""


MODEL = "one for each batch that runs, and so many batches side by side; fewer, with more threads each, where a batch is slow"


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """The threads of one library, and the reason for their number."""

    library: str
    threads: int
    why: str


def settle() -> None:
    """Tell the library that is told nowhere else. Once, before any frame."""
    cv2.setNumThreads(OPENCV)


def pools() -> list[ThreadCount]:
    """What a run uses. A thread of Watchline's own (a lane, the scheduler's two) mostly waits and is not listed."""
    from app import build
    from pipelines.sources.stream_spec import StreamOptions

    n = cores()
    return [
        ThreadCount("openvino", n, f"{MODEL}; --threads wins; with --workers 2, {share(2)} each"),
        ThreadCount("torch", n, "the same, where it runs on the CPU; one thread calls it, so that it builds one team"),
        ThreadCount("decoder of a file", build.decoders(1), "half of the cores, all files together; the model has the rest"),
        ThreadCount("decoder of a camera", 1, "frame threads would hold pictures back before any clock sees them"),
        ThreadCount("scaler", 1, "a frame is scaled in less time than a second thread takes to wake"),
        ThreadCount(
            "encoder of a file", build.encoders(1, StreamOptions()), f"half as many again as cores, all files together: {ROWS}"
        ),
        ThreadCount("encoder of a camera", 1, "more would hold frames back"),
        ThreadCount("opencv", OPENCV, "it only draws small areas"),
    ]
