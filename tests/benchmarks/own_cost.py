"""The cost of the pipeline itself, beyond decoding: CPU time for each frame, and the monitor's share of it.

    python -m tests.benchmarks.own_cost [--streams 16] [--frames 2000] [--runs 5] [--profile]

Files of 64x64 pixels at full speed through `--model probe`, a model that costs almost nothing. Decoding is measured alone in
the same run; the rest of the time is Watchline's own. Bar: 0.25 ms a frame. Then the monitor, on and off in turn, with
the default model on the shipped sample. Bar: 1 %; since two runs differ by more, its time alone is measured as well.
All figures are CPU time, so that other programs on the machine change them little.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from app import build
from app.config import Settings
from app.machine.machine import machine
from app.machine.threads import settle
from app.run.job import Job
from app.streams import StreamPlan
from app.terminal.stdio import StandardOutput
from pipelines.frame import NOTHING, Frame, Result, StreamInfo, Trace
from pipelines.monitor.ledger import StreamLedger
from pipelines.monitor.monitor import LatencyMonitor
from pipelines.sources.make_source import make_source
from pipelines.sources.stream_spec import StreamSpec
from pipelines.watch import NullWatch
from samples import FOLDER
from tests.clips import numbered

OWN_MS, MONITOR = 0.25, 0.01


def main() -> None:
    """Print each run, and the medians beside their bars; 1 if one is missed."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--streams", type=int, default=16)
    args.add_argument("--frames", type=int, default=2000, help="of each stream (2000)")
    args.add_argument("--runs", type=int, default=5)
    args.add_argument("--profile", action="store_true", help="print the threads' most expensive functions, measure nothing")
    given = args.parse_args()
    settle()
    with tempfile.TemporaryDirectory() as folder:
        clip = numbered(Path(folder) / "clip.mp4", frames=given.frames)
        probe = Settings(sources=(str(clip),), model="probe")
        if given.profile:
            _profiled(probe, given.streams)
            return
        result = _own_cost(probe, given.streams, given.runs) | _monitor(given.runs)
    print(json.dumps(result | {"machine": machine()}))
    sys.exit(1 if result["own_ms"] > OWN_MS or result["monitor_share"] > MONITOR else 0)


def _own_cost(settings: Settings, streams: int, runs: int) -> dict[str, float]:
    own = []
    for _ in range(runs):
        decoding, whole = _decode_ms(settings, streams), _run_ms(settings, streams)
        with _monitor_off():
            without = _run_ms(settings, streams)
        own.append(whole - decoding)
        print(f"{whole:.3f} ms of CPU a frame, monitor off {without:.3f}, decoding alone {decoding:.3f}", flush=True)
    print(f"own cost {statistics.median(own):.3f} ms a frame ({min(own):.3f} to {max(own):.3f}), bar {OWN_MS}", flush=True)
    return {"own_ms": statistics.median(own), "own_ms_min": min(own), "own_ms_max": max(own)}


def _monitor(runs: int) -> dict[str, float]:
    """The monitor's share of a frame of the default model."""
    settings = Settings(sources=(str(FOLDER / "sample.mp4"),))
    _run_ms(settings, 1)  # the model's first use, and the file in the page cache
    off, ratios = [], []
    for _ in range(runs):
        on = _run_ms(settings, 1)
        with _monitor_off():
            off.append(_run_ms(settings, 1))
        ratios.append(on / off[-1])
        print(f"monitor on {on:.3f} ms a frame, off {off[-1]:.3f}", flush=True)
    alone_ms = _monitor_ms()
    share, more = alone_ms / statistics.median(off), statistics.median(ratios) - 1
    print(
        f"monitor {1e3 * alone_ms:.1f} us a frame, {100 * share:.2f} % of one, bar {100 * MONITOR:g} %; on against off "
        f"{100 * more:+.1f} % ({100 * (min(ratios) - 1):+.1f} to {100 * (max(ratios) - 1):+.1f})"
    )
    return {"monitor_us": 1e3 * alone_ms, "monitor_share": share, "monitor_on_off": more}


@contextmanager
def _monitor_off() -> Iterator[None]:
    """Frames are still counted, since the figures are for each frame; nothing is timed."""

    def shown(ledger: StreamLedger, _: Result) -> None:
        ledger.shown += 1

    with mock.patch.object(StreamLedger, "_shown", shown), mock.patch.object(LatencyMonitor, "batch"):
        yield


def _monitor_ms(frames: int = 20_000) -> float:
    """CPU milliseconds that a frame costs the monitor."""
    ledger = LatencyMonitor(0.05).open("s", live=False)
    trace = Trace(1.0, 1.001, 1.002, 1.003, 1.01, 1.011, 1.012, 1.013)
    result = Result(Frame("s", 0, 0, NOTHING, None, StreamInfo(), trace), "ok")
    began = time.process_time()
    for _ in range(frames):
        ledger.capture(1.0)
        ledger.end(result)
    return 1e3 * (time.process_time() - began) / frames


def _run_ms(settings: Settings, streams: int) -> float:
    """CPU milliseconds a frame of a whole run, from the moment at which it is ready."""
    plans = [StreamPlan(StreamSpec(f"s{k}", "file", settings.sources[0])) for k in range(streams)]
    job = Job(settings, plans, {}, None, StandardOutput(None))
    job.thread.start()
    job.thread.join()
    spent_s = time.process_time() - job.session.ready_cpu_s
    assert job.exit_code() == 0, job.error
    return 1e3 * spent_s / sum(ledger.shown for ledger in job.monitor.ledgers)


def _decode_ms(settings: Settings, streams: int) -> float:
    """CPU milliseconds of decoding a frame, with as many files at once."""
    taken = [0] * streams

    def decode(k: int) -> None:
        spec = StreamSpec("s", "file", settings.sources[0])
        source = make_source(spec, threading.Event(), threads=build.decoders(streams))
        for _ in source.frames(threading.Event(), NullWatch()):
            taken[k] += 1

    began = time.process_time()
    _together([lambda k=k: decode(k) for k in range(streams)])  # type: ignore[misc]
    return 1e3 * (time.process_time() - began) / sum(taken)


def _together(all_work: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in all_work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _profiled(settings: Settings, streams: int) -> None:
    """Print the most expensive functions of each kind of thread, by its own CPU clock."""
    found: dict[str, list[cProfile.Profile]] = {}
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile(time.thread_time)
        kind = thread.name.split(":")[0]
        profile.enable()
        try:
            run(thread)
        finally:
            profile.disable()
            found.setdefault(kind, []).append(profile)

    with mock.patch.object(threading.Thread, "run", profiled):
        print(f"{_run_ms(settings, streams):.3f} ms a frame, profiled")
    for kind, profiles in found.items():
        stats = pstats.Stats(profiles[0])
        for profile in profiles[1:]:
            stats.add(profile)
        print(f"== {kind}")
        stats.sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()
