"""The number of threads of each library, with reasons. All share the cores: threads of one library make the others wait.

The modules that use a library set its number; `pools` lists the numbers for people. `settle` sets that of OpenCV.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import cv2

from pipelines.cores import cores, share

ROWS = "each waits for rows of the picture before"
OPENCV = 1
"""Threads of OpenCV, which draws. By default it wakes a pool on all cores for larger areas, in the middle of an inference."""
SWITCH_S = 0.001
"""By default Python lets a thread keep the interpreter for 5 ms while another waits: a tenth of the latency budget."""
MODEL = "one for each batch that runs, and as many batches side by side; fewer, with more threads each, if a batch is slow"


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """The threads of one library, and the reason for their number."""

    library: str
    threads: int
    why: str


def settle() -> None:
    """Set the threads of OpenCV, and the interpreter's time for each thread. Call once, before the first frame."""
    cv2.setNumThreads(OPENCV)
    sys.setswitchinterval(SWITCH_S)


def pools() -> list[ThreadCount]:
    """The threads of a run. Watchline's own threads (of a lane, of the scheduler) mostly wait and are not listed."""
    from app import build
    from pipelines.sources.stream_options import StreamOptions

    n = cores()
    return [
        ThreadCount("openvino", n, f"{MODEL}; --threads wins; with --workers 2, {share(2)} each"),
        ThreadCount("torch", n, "the same, if it runs on the CPU; one thread calls it, so that it builds one team"),
        ThreadCount("decoder of a file", build.decoders(1), "half of the cores for all files together; the model has the rest"),
        ThreadCount("decoder of a camera", 1, "frame threads would hold pictures back before any clock sees them"),
        ThreadCount("scaler", 1, "a frame is scaled in less time than a second thread takes to wake"),
        ThreadCount(
            "encoder of a file", build.encoders(1, StreamOptions()), f"1.5 times the cores for all files together: {ROWS}"
        ),
        ThreadCount("encoder of a camera", 1, "more would hold frames back"),
        ThreadCount("opencv", OPENCV, "it only draws small areas"),
    ]
