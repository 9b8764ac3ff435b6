"""`watchline bench`: end to end on a clip, beside the limit that its parts set when each is measured alone in the same run.

The limit on c cores is 1000 c / (CPU milliseconds a frame of decode + preprocess + model + render + encode).
"""

from __future__ import annotations

import io
import json
import math
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app import build
from app.config import Settings
from app.plan import plan
from app.standard import Results
from app.work import Work
from pipelines.errors import UsageError
from pipelines.frame import Capture, Frame, Prediction, Trace
from pipelines.predict.engines.engine import Engine
from pipelines.predict.predictor import PredictorEvents
from pipelines.render.overlay import Overlay
from pipelines.sources.file import FileSource
from pipelines.sources.source import Unheard

SAMPLE = 64
"""Frames on which the parts are measured alone."""


def bench(settings: Settings, results: Results, *, as_json: bool) -> int:
    """Measure and print.

    :raises UsageError: if a source is no video file.
    """
    streams = plan(settings)
    if any(s.kind != "file" for s in streams):
        raise UsageError("bench needs video files; it measures how fast they can be worked off")
    work = Work(settings, streams, {}, None, results)
    work.thread.start()
    work.thread.join()
    if work.error is not None:
        raise work.error
    report = work.report()
    parts = _parts(settings, Path(streams[0].address))
    limit_fps = 1e3 * build.cores() / sum(parts.values())
    fps = report["throughput_fps"] or 0.0
    result = report | {"parts_cpu_ms": parts, "limit_fps": round(limit_fps, 1), "share_of_limit": round(fps / limit_fps, 3)}
    if as_json:
        results.put(json.dumps(result, ensure_ascii=False))
    else:
        _print(result, results)
    return 0


def _parts(settings: Settings, clip: Path) -> dict[str, float]:
    """CPU milliseconds a frame of each part, alone. CPU time, so that whoever else uses the machine counts little."""
    captures, decode_ms = _timed(lambda: _decoded(clip), SAMPLE)
    model = build.make_model(settings, PredictorEvents(), build.Load())
    row = np.zeros(model.preprocess.shape, np.uint8)

    def preprocess() -> None:
        for capture in captures:
            model.preprocess(capture.picture, row)

    _, preprocess_ms = _timed(preprocess, len(captures))
    parts = {
        "decode": decode_ms,
        "preprocess": preprocess_ms,
        "model": _model_ms(model.predictor.engine, min(16, settings.max_batch)),
    }
    if settings.output is not None:
        parts |= _drawn(captures)
    return {name: round(ms, 3) for name, ms in parts.items()}


def _timed(work: Callable[[], Any], frames: int) -> tuple[Any, float]:
    work()
    began = time.process_time()
    result = work()
    return result, 1e3 * (time.process_time() - began) / max(frames, 1)


def _decoded(clip: Path) -> list[Capture]:
    captures = FileSource(clip).frames(threading.Event(), Unheard())
    taken = list(islice(captures, SAMPLE))
    captures.close()
    return taken


def _model_ms(engine: Engine, batch: int) -> float:
    (slot,) = engine.open(batch, 1)

    def run() -> None:
        for _ in range(math.ceil(SAMPLE / batch)):
            engine.start(slot, batch)
            engine.wait(slot, batch)

    _, ms = _timed(run, batch * math.ceil(SAMPLE / batch))
    engine.close()
    return ms


def _drawn(captures: list[Capture]) -> dict[str, float]:
    import tempfile

    from pipelines.sinks.video import VideoFile

    overlay = Overlay()
    frames = [
        Frame("bench", 0, k, c.picture, c.pts_s, c.info, Trace(c.arrived_s, c.decoded_s)) for k, c in enumerate(captures)
    ]
    nothing = Prediction((), 0, 1)
    pictures, render_ms = _timed(lambda: [overlay.render(f, nothing) for f in frames], len(frames))
    with tempfile.TemporaryDirectory() as folder:
        video = VideoFile(Path(folder) / "bench.mp4")
        began = time.process_time()
        for frame, picture in zip(frames, pictures, strict=True):
            video.show(frame, picture)
        video.close(True)
        encode_ms = 1e3 * (time.process_time() - began) / max(len(frames), 1)
    return {"render": render_ms, "encode": encode_ms}


def _print(result: dict[str, Any], results: Results) -> None:
    m = result["machine"]
    results.put(f"{m['cpu']}, {m['cores']} cores, GPU {m['gpu'] or 'none'}, Python {m['python']}")
    results.put(", ".join(f"{name} {v}" for name, v in m["versions"].items()))
    results.put(f"{result['engine']['why']}")
    captured = sum(s["captured"] for s in result["streams"].values())
    results.put(
        f"\n{captured} frames, {result['throughput_fps']} frames/s; parts alone allow {result['limit_fps']} "
        f"({', '.join(f'{name} {ms} ms' for name, ms in result['parts_cpu_ms'].items())} of CPU a frame): "
        f"{100 * result['share_of_limit']:.0f} % of the limit"
    )
    drops = sum(n for s in result["streams"].values() for n in s["dropped"].values())
    results.put(f"dropped {drops}, batches {result['batch_sizes']}, warm-up {result['warmup_s']} s\n")
    table = Table("ms", "p50", "p95", "p99", "max", box=None)
    for stage, figures in result["latency_ms"].items():
        table.add_row(stage, *(str(figures[k]) for k in ("p50", "p95", "p99", "max")))
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    results.put(console.file.getvalue().rstrip())  # type: ignore[attr-defined]
