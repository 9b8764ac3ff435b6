"""Runs the soak: the cameras, the command in a process of its own, and the faults of the cameras."""

from __future__ import annotations

import heapq
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.clips import numbered
from tests.command import WATCHLINE, environ
from tests.servers import Play, RtspServer
from tests.soak.record import Happened, Record, Sample, keep_samples, read_streams
from tests.soak.schedule import Fault, Kind, schedule

CAMERAS = 4
SIZES = ((320, 240), (480, 360))
MOUNT = "cam"
START_S = 60.0
SWITCHED_S = 2.0
"""A camera takes its other size up with the next key picture, within a second."""
SAMPLE_S = 1.0
CALM_S = 11.0
"""After a fault, or the beginning: by then the last camera is seen again (10 s) and its abandoned connections are closed."""
END_S = 10.0
"""A command that has not ended so long after SIGTERM is killed."""

BEGIN: dict[Kind, Callable[[RtspServer], None]] = {
    "killed": RtspServer.kill,
    "frozen": RtspServer.freeze,
    "no pictures": lambda camera: camera.freeze_pictures(MOUNT),
    "restarted": RtspServer.restart,
    "another size": lambda camera: camera.switch(MOUNT),
    "clock restarted": lambda camera: camera.restart_clock(MOUNT),
}
END: dict[Kind, Callable[[RtspServer], None]] = {
    "killed": RtspServer.restart,
    "frozen": RtspServer.thaw,
    "no pictures": lambda camera: camera.thaw_pictures(MOUNT),
}


def soak(length_s: float, *, every_s: float, seed: int, folder: Path, tell: Callable[[str], None] = lambda _: None) -> Record:
    """Soak the command for so long, after all cameras were seen. The files of the run are left in `folder`.

    :raises RuntimeError: if the command does not come to show the cameras.
    """
    clip, other = (numbered(folder / f"{w}x{h}.mp4", size=(w, h), sound=True) for w, h in SIZES)
    with ExitStack() as stack:
        cameras = [stack.enter_context(RtspServer({MOUNT: Play(clip, other=other, always_on=True)})) for _ in range(CAMERAS)]
        command = stack.enter_context(_Command(folder, [camera.url(MOUNT) for camera in cameras]))
        command.until_seen()
        _show_sizes(cameras)
        happening = _Happening(cameras, command, tell)
        happening.go(length_s, schedule(length_s, every_s, seed, CAMERAS))
        code, ended_in_s = command.end()
    keep_samples(happening.samples, folder / "samples.csv")
    streams = read_streams(command.lines, command.report, time.time() - time.monotonic()) if command.report.exists() else {}
    said = command.said.read_text(encoding="utf-8")
    return Record(happening.happened, happening.samples, streams, code, ended_in_s, said, length_s)


def _show_sizes(cameras: list[RtspServer]) -> None:
    """Each camera shows both of its sizes, so that the command has seen the largest pictures before its memory is looked at."""
    pause = threading.Event()
    for _ in SIZES:
        for camera in cameras:
            camera.switch(MOUNT)
        pause.wait(SWITCHED_S)


def name_of(camera: int) -> str:
    """The stream of a camera."""
    return f"cam{camera}"


class _Command:
    """`watchline run` with its outputs in a folder; ends with the `with`."""

    def __init__(self, folder: Path, urls: list[str]) -> None:
        self.lines = folder / "lines.jsonl"
        self.report = folder / "report.json"
        self.said = folder / "said.txt"
        self._config = folder / "soak.yaml"
        streams = "".join(f"  {name_of(k)}: {{source: {url!r}}}\n" for k, url in enumerate(urls))
        self._config.write_text(f"streams:\n{streams}model: probe\n", encoding="utf-8")

    def __enter__(self) -> _Command:
        for left in (self.lines, self.report):
            left.unlink(missing_ok=True)  # of an earlier run in this folder
        outputs = ["--jsonl", str(self.lines), "--report", str(self.report)]
        with self.said.open("w", encoding="utf-8") as said:
            self.process = subprocess.Popen(
                [str(WATCHLINE), "run", "--config", str(self._config), "--no-show", *outputs],
                env=environ(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def until_seen(self) -> None:
        """Wait until every camera has been captured."""
        pause, end_s = threading.Event(), time.monotonic() + START_S
        while not (self.lines.exists() and all(f'"{name_of(k)}"' in self.lines.read_text() for k in range(CAMERAS))):
            if time.monotonic() > end_s or self.process.poll() is not None:
                raise RuntimeError(f"not all cameras were seen within {START_S:g} s: {self.said.read_text()}")
            pause.wait(0.2)

    def sample(self, *, calm: bool) -> Sample | None:
        """The process as it is now; None if it has ended."""
        proc = Path("/proc") / str(self.process.pid)
        try:
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
            descriptors = len(list((proc / "fd").iterdir()))
            return Sample(time.monotonic(), int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), descriptors, calm)
        except (OSError, KeyError):
            return None

    def end(self) -> tuple[int | None, float]:
        """Ask it to end; its exit code, if it does, and how long that took."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_S), time.monotonic() - began_s
        except subprocess.TimeoutExpired:
            return None, time.monotonic() - began_s


class _Happening:
    """Makes the faults, samples the command, and keeps both with their times."""

    def __init__(self, cameras: list[RtspServer], command: _Command, tell: Callable[[str], None]) -> None:
        self.happened: list[Happened] = []
        self.samples: list[Sample] = []
        self._cameras = cameras
        self._command = command
        self._tell = tell
        self._pause = threading.Event()
        self._calm_from_s = 0.0

    def go(self, length_s: float, faults: list[Fault]) -> None:
        """Until the time is over or the command has ended."""
        start_s = time.monotonic()
        self._calm_from_s = start_s  # all of them have just been seen
        due: list[tuple[float, int, Fault, float | None]] = [(start_s + f.at_s, k, f, None) for k, f in enumerate(faults)]
        heapq.heapify(due)
        ill = 0
        while (now := time.monotonic()) < start_s + length_s and self._command.process.poll() is None:
            if due and due[0][0] <= now:
                _, k, fault, began_s = heapq.heappop(due)
                if began_s is None:
                    heapq.heappush(due, (time.monotonic() + fault.for_s, k, fault, self._begin(fault)))
                    ill += 1
                else:
                    self._end(fault, began_s)
                    ill -= 1
                continue
            calm = not ill and now >= self._calm_from_s
            if (sample := self._command.sample(calm=calm)) is not None:
                self.samples.append(sample)
            self._pause.wait(min(SAMPLE_S, max((due[0][0] if due else start_s + length_s) - time.monotonic(), 0.0)))

    def _begin(self, fault: Fault) -> float:
        self._tell(f"{name_of(fault.camera)}: {fault.kind}")
        began_s = time.monotonic()
        BEGIN[fault.kind](self._cameras[fault.camera])
        return began_s

    def _end(self, fault: Fault, began_s: float) -> None:
        if fault.kind in END:
            END[fault.kind](self._cameras[fault.camera])
        back_s = time.monotonic()
        self._calm_from_s = back_s + CALM_S
        self.happened.append(Happened(name_of(fault.camera), fault.kind, began_s, back_s))
