"""`watchline bench concurrency`: the gains of concurrency, batching, overlapping and the warm-up on this machine, with reasons.

Measured on the model of the settings, and on a device with a GPU's batch times (a batch of b takes 8 + 0.5 b ms). Requests
are pictures handed straight to the predictor, so that neither decoder nor outputs disturb the comparison.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any

from app import build
from app.bench import stages
from app.bench.clients import Answering, LoadFigures, middle, one_by_one, stream
from app.bench.tables import machine_lines, table
from app.config import Settings
from app.machine.machine import machine
from app.streams import plan
from app.terminal.stdio import StandardOutput
from pipelines.frame import Picture
from pipelines.predict.models.builder import Model, largest_batch
from pipelines.predict.models.model_options import Load
from pipelines.predict.models.names import PROBE
from pipelines.predict.predictor import PredictorEvents
from pipelines.predict.scheduling.profile import Profile, Timing
from pipelines.sources.make_source import make_source
from pipelines.watch import NullWatch

log = logging.getLogger("watchline.bench")

AT_ONCE, CLIENTS = 8, 16
"""Clients of the comparison of concurrent requests, and of batching, which needs more of them."""
GPU_LIKE = {"model": PROBE, "probe_ms_per_batch": 8.0, "probe_ms_per_frame": 0.5}
ROUNDS = 3
"""Turns of each measurement."""
PAYS = 1.1
"""The least ratio that counts as a gain; a smaller one may be noise."""


SLOW_MS = 5.0
"""A first batch is slow if it takes this much longer than a warm one, and at least twice as long."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One technique, measured with and without it. `words`: a sentence on whether it pays."""

    promise: str
    without: LoadFigures
    kept: LoadFigures
    words: str

    @property
    def gain(self) -> float:
        """Ratio of the throughputs."""
        return times(self.kept, self.without)


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of one model. `first_ms` and `warm_ms` by batch size."""

    model: str
    why: str
    compared: tuple[Compared, ...]
    first_ms: dict[int, float]
    warm_ms: dict[int, float]
    first_words: str


def bench(settings: Settings, results: StandardOutput, *, seconds: float, as_json: bool) -> int:
    """Measure and print."""
    picture = _picture(settings)
    shaped = replace(settings, **GPU_LIKE, labels=None, device="auto")  # type: ignore[arg-type]
    found = [_findings(s, picture, seconds) for s in ([settings] if settings.model == PROBE else [settings, shaped])]
    if as_json:
        results.put(json.dumps({"models": [_as_dict(f) for f in found], "machine": machine()}, ensure_ascii=False))
    else:
        _print(found, results)
    return 0


def _picture(settings: Settings) -> Picture:
    source = make_source(plan(settings)[0].spec, threading.Event())
    return next(islice(source.frames(threading.Event(), NullWatch()), 1)).picture


def _findings(settings: Settings, picture: Picture, seconds: float) -> Findings:
    load = Load(cameras=1)  # a client waits for each answer
    models = [build.make_model(settings, PredictorEvents(), load) for _ in range(3)]
    engine = models[0].engine
    parallel, most = engine.parallel, largest_batch(engine, load, settings.max_batch)
    log.info("%s", models[0].why)
    # The engine is fresh: no batch size has been used yet.
    first_ms, warm_ms = first_use(engine, most)
    known = Profile({b: Timing(1e-3 * ms, 1e-3 * ms) for b, ms in warm_ms.items()}, most)
    loads = _loads(models, known, picture, (parallel, most), seconds)
    copies = engine.device != "cpu"
    what = f"{'copies' if copies else 'staging'} overlapped"
    shape = _shape(warm_ms)
    one, eight, plain, dynamic, alone, overlapped = (middle(x) for x in loads)
    return Findings(
        settings.model,
        models[0].why,
        (
            Compared(f"{AT_ONCE} requests at once", one, eight, _at_once(one, eight, shape)),
            Compared("dynamic batching", plain, dynamic, _batching(plain, dynamic, shape)),
            Compared(what, alone, overlapped, _overlap(alone, overlapped, copies=copies)),
        ),
        first_ms,
        warm_ms,
        _first(first_ms, warm_ms),
    )


def _loads(
    models: Sequence[Model], known: Profile, picture: Picture, batches: tuple[int, int], seconds: float
) -> tuple[list[LoadFigures], ...]:
    """The rounds of each measurement. The measurements take turns, so that noise of the machine meets all of them."""
    parallel, most = batches
    usual, single, alone = (
        Answering(model, known, most=size, parallel=parallel, ahead=ahead)
        for model, size, ahead in zip(models, (most, 1, most), (1, 1, 0), strict=True)
    )
    each_s = seconds / ROUNDS
    with usual, single, alone:
        turns: list[Callable[[], LoadFigures]] = [
            lambda: one_by_one(usual, picture, 1, each_s),
            lambda: one_by_one(usual, picture, AT_ONCE, each_s),
            lambda: one_by_one(single, picture, CLIENTS, each_s),
            lambda: one_by_one(usual, picture, CLIENTS, each_s),
            lambda: stream(alone, picture, each_s),
            lambda: stream(usual, picture, each_s),
        ]
        rounds = [[turn() for turn in turns] for _ in range(ROUNDS)]
    return tuple(list(x) for x in zip(*rounds, strict=True))


def first_use(engine: Any, most: int) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds of the first batch of each size, largest last, and of warm ones. Opens the engine and closes it."""
    (slot,) = engine.open(most, 1)

    def run(b: int) -> float:
        began = perf_counter()
        engine.start(slot, b)
        engine.wait(slot, b)
        return 1e3 * (perf_counter() - began)

    first, warm = {}, {}
    for b in stages.sizes(engine, most):
        first[b] = run(b)
        warm[b] = sorted(run(b) for _ in range(5))[2]
    engine.close()
    return first, warm


def times(kept: LoadFigures, without: LoadFigures) -> float:
    """Ratio of the throughputs; 0 if there was none without the technique."""
    return kept.per_s / without.per_s if without.per_s else 0.0


def _shape(warm_ms: dict[int, float]) -> str:
    most = max(warm_ms)
    share = warm_ms[most] / max(most * warm_ms[1], 1e-3)
    return f"a batch of {most} takes {100 * share:.0f} % of the time of {most} single ones"


def _pays(gain: float) -> str:
    return "pays" if gain >= PAYS else "does not pay" if gain <= 1 / PAYS else "makes no difference"


def _at_once(single: LoadFigures, together: LoadFigures, shape: str) -> str:
    gain = times(together, single)
    return f"{_pays(gain)}: {gain:.2f} times the answers, each after {together.p50_ms:.1f} ms, not {single.p50_ms:.1f}; {shape}"


def _batching(plain: LoadFigures, dynamic: LoadFigures, shape: str) -> str:
    gain = times(dynamic, plain)
    return f"{_pays(gain)}: {gain:.2f} times the answers, p99 {dynamic.p99_ms:.1f} ms, not {plain.p99_ms:.1f}; {shape}"


def _overlap(alone: LoadFigures, overlapped: LoadFigures, *, copies: bool) -> str:
    gain = times(overlapped, alone)
    where = "" if copies else "; nothing is copied on a CPU: what overlaps is the next batch's preprocessing"
    return f"{_pays(gain)}: {gain:.2f} times the frames{where}"


def _first(first_ms: dict[int, float], warm_ms: dict[int, float]) -> str:
    b = max(first_ms, key=lambda k: first_ms[k] - warm_ms[k])
    if first_ms[b] - warm_ms[b] < max(SLOW_MS, warm_ms[b]):
        return "makes no difference: no size is much slower at its first use"
    return f"pays: without warming, the first batch of {b} would take {first_ms[b]:.0f} ms, not {warm_ms[b]:.1f}"


def _as_dict(f: Findings) -> dict[str, Any]:
    compared = [{**asdict(c), "gain": round(c.gain, 3)} for c in f.compared]
    sizes = {"first_ms": _rounded(f.first_ms), "warm_ms": _rounded(f.warm_ms)}
    return {"model": f.model, "engine": f.why, "compared": compared, **sizes, "first_use": f.first_words}


def _rounded(by_size: dict[int, float]) -> dict[str, float]:
    return {str(b): round(ms, 3) for b, ms in by_size.items()}


def _print(found: Iterable[Findings], results: StandardOutput) -> None:
    for line in machine_lines(machine()):
        results.put(line)
    for f in found:
        results.put(f"\n{f.model}: {f.why}\n")
        rows = [row for c in f.compared for row in (_row(f"without {c.promise}", c.without), _row(f"with {c.promise}", c.kept))]
        results.put(table(["", "answers/s", "p50 ms", "p99 ms", "frames a batch"], rows))
        sizes = [[name, *(f"{ms:.1f}" for ms in by.values())] for name, by in (("first use", f.first_ms), ("warm", f.warm_ms))]
        results.put("\n" + table(["ms of a batch of", *(str(b) for b in f.first_ms)], sizes) + "\n")
        for c in f.compared:
            results.put(f"{c.promise} {c.words}")
        results.put(f"warming up {f.first_words}")


def _row(name: str, load: LoadFigures) -> list[Any]:
    figure: Callable[[float | None], str | None] = lambda x: None if x is None else f"{x:.1f}"  # noqa: E731
    return [name, *(figure(x) for x in (load.per_s, load.p50_ms, load.p99_ms, load.mean_batch))]
