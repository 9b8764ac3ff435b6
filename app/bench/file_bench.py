"""`watchline bench files`: end to end on a clip, beside the limit that its parts set, each measured alone in the same run.

The limit on c cores is 1000 c / (CPU milliseconds a frame of decode + preprocess + model + render + encode).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from app import build
from app.bench import stages
from app.bench.tables import machine_lines, table
from app.config import Settings
from app.run.job import Job
from app.streams import plan
from app.terminal.stdio import StandardOutput
from pipelines.cores import cores
from pipelines.errors import UsageError
from pipelines.predict.models.builder import largest_batch
from pipelines.predict.models.model_options import Load
from pipelines.predict.predictor import PredictorEvents
from pipelines.sources.files.file import FileSource

BATCH = 16
"""The largest batch in which the model is measured alone."""


def bench(settings: Settings, results: StandardOutput, *, as_json: bool) -> int:
    """Measure and print.

    :raises UsageError: if a source is no video file.
    """
    streams = plan(settings)
    if any(s.spec.kind != "file" for s in streams):
        raise UsageError("bench files needs video files; it measures how fast they can be worked off")
    job = Job(settings, streams, {}, None, results)
    job.thread.start()
    job.thread.join()
    cpu_s, wall_s = time.process_time() - job.session.ready_cpu_s, time.monotonic() - job.session.ready_s
    if job.error is not None:
        raise job.error
    report = job.report()
    shown = report.session.shown
    costs = _parts(settings, Path(streams[0].spec.address))
    limit_fps = 1e3 * cores() / sum(costs.values())
    fps = report.session.throughput_fps or 0.0
    result = report.as_dict() | {
        "run_fps": round(shown / wall_s, 1),
        "cpu_ms": round(1e3 * cpu_s / max(shown, 1), 3),
        "parts_cpu_ms": costs,
        "limit_fps": round(limit_fps, 1),
        "share_of_limit": round(fps / limit_fps, 3),
    }
    if as_json:
        results.put(json.dumps(result, ensure_ascii=False))
    else:
        _print(result, results)
    return job.exit_code()


def _parts(settings: Settings, clip: Path) -> dict[str, float]:
    """CPU milliseconds a frame of each part, alone."""
    captures, decode_ms = stages.decode(lambda: FileSource(clip))
    model = build.make_model(settings, PredictorEvents(), Load())
    batches = stages.model(model.engine, min(BATCH, largest_batch(model.engine, Load(), settings.max_batch)))
    costs = {
        "decode": decode_ms,
        "preprocess": stages.preprocess(model.preprocess, captures),
        # In the batch that costs least: the most that the cores could do.
        "model": min(cost.cpu_ms for cost in batches.values()),
    }
    if settings.output is not None:
        costs |= stages.drawn(captures)
    return {name: round(ms, 3) for name, ms in costs.items()}


def _print(result: dict[str, Any], results: StandardOutput) -> None:
    for line in machine_lines(result["machine"]):
        results.put(line)
    results.put(f"{result['engine']['why']}")
    captured = sum(s["captured"] for s in result["streams"].values())
    results.put(
        f"\n{captured} frames, {result['throughput_fps']} frames/s; parts alone allow {result['limit_fps']} "
        f"({', '.join(f'{name} {ms} ms' for name, ms in result['parts_cpu_ms'].items())} of CPU a frame): "
        f"{100 * result['share_of_limit']:.0f} % of the limit; {result['cpu_ms']} ms of CPU a frame in all"
    )
    drops = sum(n for s in result["streams"].values() for n in s["dropped"].values())
    results.put(f"dropped {drops}, batches {result['batch_sizes']}, warm-up {result['warmup_s']} s\n")
    rows = [[stage, *(figures[k] for k in ("p50", "p95", "p99", "max"))] for stage, figures in result["latency_ms"].items()]
    results.put(table(["ms", "p50", "p95", "p99", "max"], rows))
