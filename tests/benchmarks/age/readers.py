"""The readers that are compared, each alone in a process: `python -m tests.benchmarks.age.readers READER URL SECONDS`.

Prints one JSON object: arrival time and stamp of each picture, and the CPU time of the whole process for each frame, since some
readers decode in threads of their own. The stamps are read after the measurement.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipelines.choices import RtspClientKind, RtspTransport
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.rtsp_source import RtspSource
from pipelines.watch import NullWatch
from tests.benchmarks.age.figures import SETTLE_S
from tests.servers.stamp import read_stamp, strip_of

Luma = npt.NDArray[np.uint8]


def main() -> None:
    """Read for so many seconds from the first picture on."""
    name, url, seconds = sys.argv[1:]
    seen: list[tuple[float, Luma]] = []
    began: tuple[int, float] | None = None
    for luma in READERS[name](url):
        seen.append((time.monotonic(), strip_of(luma).copy()))
        if began is None and seen[-1][0] > seen[0][0] + SETTLE_S:
            began = len(seen), time.process_time()
        if seen[-1][0] > seen[0][0] + float(seconds):
            break
    cpu_ms = 1e3 * (time.process_time() - began[1]) / (len(seen) - began[0]) if began and len(seen) > began[0] else None
    print(json.dumps({"seen": [(at_s, read_stamp(strip)) for at_s, strip in seen], "cpu_ms": cpu_ms}))


def _watchline(client: RtspClientKind, transport: RtspTransport, url: str) -> Iterator[Luma]:
    for capture in RtspSource(url, RtspOptions(client, transport)).frames(threading.Event(), NullWatch()):
        yield capture.picture.y


def _pyav(threads: Literal["AUTO", "SLICE"], options: dict[str, str], url: str) -> Iterator[Luma]:
    """threads: SLICE is PyAV's default."""
    import av

    with av.open(url, options=options, timeout=(10, 10)) as container:
        container.streams.video[0].thread_type = threads
        for frame in container.decode(video=0):
            plane = frame.planes[0]
            yield np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height]


def _opencv(url: str) -> Iterator[Luma]:
    """The green channel stands for luma: the stamp is grey."""
    import cv2

    camera = cv2.VideoCapture(url)
    while (there := camera.read())[0]:
        yield there[1][:, :, 1]


QUICK = {"fflags": "nobuffer", "probesize": "32", "analyzeduration": "0"}
TCP = {"rtsp_transport": "tcp"}
READERS: dict[str, Callable[[str], Iterator[Luma]]] = {
    "Watchline, native, TCP": partial(_watchline, "native", "tcp"),
    "Watchline, native, UDP": partial(_watchline, "native", "udp"),
    "Watchline, FFmpeg, TCP": partial(_watchline, "ffmpeg", "tcp"),
    "PyAV, nobuffer, no probing, TCP": partial(_pyav, "SLICE", QUICK | TCP),
    "PyAV, defaults": partial(_pyav, "SLICE", {}),
    "PyAV, frame threads, TCP": partial(_pyav, "AUTO", TCP),
    "cv2.VideoCapture, defaults": _opencv,
}


if __name__ == "__main__":
    main()
