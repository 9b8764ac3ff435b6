"""`watchline bench streams`: the most live streams that are served within the budget, beside an upper bound.

The upper bound is the smaller of two bounds (see `ideal`), from parts that are measured alone in the same run. The time of
batches bounds every scheduler; the CPU time of decoder, preprocessing and model bounds the cores. The load is open: a late
pipeline slows no source down.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from app import build
from app.bench import ideal, stages
from app.bench.player import make_camera
from app.bench.rig import Rig, Trial
from app.bench.tables import machine_lines, table
from app.config import Settings
from app.machine.machine import machine
from app.streams import StreamPlan, plan
from app.terminal.stdio import StandardOutput
from pipelines.cores import cores
from pipelines.errors import UsageError
from pipelines.frame import STAGES, Capture
from pipelines.predict.models.builder import largest_batch
from pipelines.predict.models.model_options import Load
from pipelines.predict.predictor import PredictorEvents
from pipelines.sources.make_source import make_source

log = logging.getLogger("watchline.bench")

GOODPUT = 0.99
"""Share of frames within the budget with which streams count as served."""
OTHERS = 0.1
"""Cores that other programs may use before the output asks to measure again."""
MOST = 1024
"""About the most streams that are tried. Each has two threads."""
CAMERA_FRAMES = 25
"""Frames on which a camera's decoding is measured; a camera cannot be played twice."""


def bench(settings: Settings, results: StandardOutput, *, seconds: float, streams: int | None, as_json: bool) -> int:
    """Measure and print. streams: their number; None: search for the most.

    :raises UsageError: if the source cannot be opened several times.
    :raises SourceError: if it breaks off.
    """
    planned = plan(settings)
    if len(planned) != 1:
        raise UsageError(f"bench streams plays one source many times; {len(planned)} were given, name one")
    make_camera(planned[0].spec, threading.Event(), 0.0)  # fails at once if the source cannot be opened several times
    limits = StreamLimits(settings, planned[0])
    stage = Rig(settings, planned[0])
    model = build.make_model(settings, PredictorEvents(stage.batch), cameras(settings))
    with model.predictor:
        log.info("%s; at best %s", model.why, limits.words())

        def play(n: int) -> Trial:
            trial = stage.play(model.predictor, n, seconds, limits.period_s)
            log.info("%d streams: goodput %.4f", n, trial.goodput)
            return trial

        if streams is not None:
            best, double = play(streams), None
        else:
            best = _most(play, max(1, limits.ideal.streams // 2))
            double = play(2 * best.streams)
    result = _result(settings, limits, model.why, best, double)
    if as_json:
        results.put(json.dumps(result, ensure_ascii=False))
    else:
        _print(result, results)
    return 0


class StreamLimits:
    """The bounds that the parts set, each measured alone. Construct it in the main thread; it takes some seconds."""

    def __init__(self, settings: Settings, stream: StreamPlan) -> None:
        budget_s = 1e-3 * settings.budget_ms
        captures, decode_ms = _decoded(settings, stream)
        load = cameras(settings)
        model = build.make_model(settings, PredictorEvents(), load)
        engine = model.engine
        parallel, most = engine.parallel, largest_batch(engine, load, settings.max_batch)
        costs = stages.model(engine, most, longest_s=budget_s)
        within = [cost.cpu_ms for cost in costs.values() if cost.seconds <= budget_s]
        self.parts_ms = {
            "decode": decode_ms,
            "preprocess": stages.preprocess(model.preprocess, captures),
            # The cheapest batch size within the budget: the best case for the cores.
            "model": min(within, default=costs[1].cpu_ms),
        }
        rate = captures[0].info.rate if captures else None
        self.period_s = float(1 / (rate or 25))
        self.profile_ms = {b: 1e3 * cost.seconds for b, cost in costs.items()}
        self.cores = cores()
        shape = stages.profile(costs, engine, most)
        self.in_step = ideal.in_step(shape, self.period_s, budget_s, parallel)
        self.ideal = ideal.Ideal(
            ideal.by_device(shape, self.period_s, budget_s, parallel), ideal.by_cores(self.parts_ms, self.cores, self.period_s)
        )

    def words(self) -> str:
        """The bounds, for people."""
        costs = " + ".join(f"{name} {ms:.2f}" for name, ms in self.parts_ms.items())
        return (
            f"{self.ideal.streams} streams of {1 / self.period_s:.4g} fps: the device allows {self.ideal.device}, "
            f"{self.cores} cores allow {self.ideal.cores:.1f} ({costs} ms of CPU a frame)"
        )


def cameras(settings: Settings) -> Load:
    """The load that the predictor is built for: streams enough to fill the largest batch."""
    return Load(cameras=settings.max_batch, files=False)


def _decoded(settings: Settings, stream: StreamPlan) -> tuple[list[Capture], float]:
    """Some captures, and the CPU milliseconds of one. A source that sets its own pace is measured once."""
    if stream.spec.kind == "file":
        return stages.decode(lambda: make_source(stream.spec, threading.Event()))
    return stages.decode(lambda: make_source(stream.spec, threading.Event()), CAMERA_FRAMES, repeats=0)


def reached(good: Callable[[int], bool], first: int) -> int:
    """The most streams for which `good` holds, 0 if it does not for one. Doubling or halving from `first`, then bisection."""
    if good(first):
        low, high = first, 2 * first
        while high <= MOST and good(high):
            low, high = high, 2 * high
    else:
        low, high = 0, first
        while high > 1 and low == 0:
            half = high // 2
            low, high = (half, high) if good(half) else (0, half)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _most(play: Callable[[int], Trial], first: int) -> Trial:
    """The trial with the most streams that were served. One that fails is played once more: of a few hundred frames a single
    hiccup of the machine makes too many late."""
    trials: dict[int, Trial] = {}

    def good(n: int) -> bool:
        for _ in range(2):
            trials[n] = play(n)
            if trials[n].goodput >= GOODPUT:
                return True
        return False

    return trials[max(reached(good, first), 1)]


def _result(settings: Settings, limits: StreamLimits, why: str, best: Trial, double: Trial | None) -> dict[str, Any]:
    served = best.streams if best.goodput >= GOODPUT else 0
    # Of whole streams, since the bound of the cores is none: 8 of 9.4 is 8 of 9.
    share = served / limits.ideal.streams if limits.ideal.streams else None
    searched = {
        "reached": served,
        "share_of_ideal": None if share is None else round(share, 3),
        "share_of_limit": round(served / min(limits.ideal.device, limits.ideal.cores), 3) if share is not None else None,
    }
    return {
        "budget_ms": settings.budget_ms,
        "fps": round(1 / limits.period_s, 3),
        "ideal": limits.ideal.streams,
        "ideal_device": limits.ideal.device,
        "ideal_device_in_step": limits.in_step,
        "ideal_cores": round(limits.ideal.cores, 2),
        "parts_cpu_ms": {name: round(ms, 3) for name, ms in limits.parts_ms.items()},
        "profile_ms": {str(b): round(ms, 3) for b, ms in limits.profile_ms.items()},
        **(searched if double is not None else {}),
        "trial": _as_dict(best),
        "double": None if double is None else _as_dict(double),
        "engine": why,
        "machine": machine(),
    }


def _as_dict(trial: Trial) -> dict[str, Any]:
    figures = dataclasses.asdict(trial) | {"largest_batch": trial.largest_batch, "mean_batch": trial.mean_batch}
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}


def _print(result: dict[str, Any], results: StandardOutput) -> None:
    for line in machine_lines(result["machine"]):
        results.put(line)
    results.put(result["engine"])
    costs = ", ".join(f"{name} {ms} ms" for name, ms in result["parts_cpu_ms"].items())
    results.put(
        f"\nat best {result['ideal']} streams of {result['fps']:g} fps within {result['budget_ms']:g} ms: the device allows "
        f"{result['ideal_device']}, the cores {result['ideal_cores']} ({costs} of CPU a frame)"
    )
    if "reached" in result:
        share = "" if result["share_of_ideal"] is None else f": {100 * result['share_of_ideal']:.0f} % of that"
        results.put(f"reached {result['reached']} with a goodput of {GOODPUT} or more{share}")
    trials = [t for t in (result["trial"], result["double"]) if t is not None]
    others = max(t["elsewhere"] for t in trials)
    if others > OTHERS:
        cores = result["machine"]["cores"]
        results.put(f"other programs used {others:.1f} of {cores} cores meanwhile: measure again when they are idle")
    results.put()
    results.put(table(["streams", *(str(t["streams"]) for t in trials)], [_row(name, trials) for name in ROWS]))
    stages = [[s, *(t["latency_ms"][s][q] for t in trials for q in QUANTILES)] for s in STAGES]
    results.put()
    results.put(table(["ms", *(f"{q} ({t['streams']})" for t in trials for q in QUANTILES)], stages))


QUANTILES = ("p50", "p95", "p99", "max")
ROWS = (
    "goodput",
    "captured",
    "shown",
    "late",
    "dropped",
    "fairness (Jain)",
    "mean batch",
    "largest batch",
    "cores busy",
    "cores others used",
    "ledger",
)


def _row(name: str, trials: list[dict[str, Any]]) -> list[Any]:
    keys = {
        "cores busy": "busy",
        "cores others used": "elsewhere",
        "fairness (Jain)": "fairness",
        "mean batch": "mean_batch",
        "largest batch": "largest_batch",
    }
    cells = {
        "dropped": lambda t: ", ".join(f"{cause} {n}" for cause, n in t["dropped"].items() if n) or 0,
        "ledger": lambda t: "adds up" if t["adds_up"] else "DOES NOT ADD UP",
    }
    cell = cells.get(name, lambda t: t[keys.get(name, name)])
    return [name, *(cell(t) for t in trials)]
