"""From a model's name to its predictor: the model is found, converted, chosen for and sized; nothing is opened yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipelines.cores import cores, cpu_name, share
from pipelines.errors import UsageError
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.probe import CLASSES, ProbeEngine
from pipelines.predict.interface import Predictor
from pipelines.predict.models import autoselect, catalog
from pipelines.predict.models.comparison import Conditions, convert
from pipelines.predict.models.kinds import EngineKind, kind_of
from pipelines.predict.models.labels import read_labels
from pipelines.predict.models.model_options import Load, ModelOptions, default_cache
from pipelines.predict.models.names import PROBE
from pipelines.predict.models.store import ModelStore, Stored
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.prepared import EnginePlace, Prepared
from pipelines.predict.preprocess import InputSpec, Preprocess, ProbePreprocess, RgbPreprocess
from pipelines.predict.scheduling.profile import Timing
from pipelines.predict.scheduling.scheduler_options import SchedulerOptions
from pipelines.predict.workers.pool import Pool
from pipelines.predict.workers.supervisor import PoolOptions
from pipelines.predict.workers.worker_engine import WorkerEngine
from pipelines.tasks.task import Task

MOST_PARALLEL = 8
"""Batches side by side at most: each has a slot, and the working memory of a batch."""
SHARED_BATCH = 8
"""Largest batch of cameras if several batches run side by side. A frame on one thread costs least in batches of 2 to 4 (bf16,
images/s of two threads: 178, 191, 185, 161, 141 in batches of 1, 2, 4, 8, 16), and each size in each place takes memory."""
SINGLE_SHARE = 0.5
"""Share of the latency budget that a single frame may take on the threads of one of several batches."""


@dataclass(frozen=True, slots=True)
class Model:
    """A predictor, not yet entered, with the facts about its model. engine: the engine; of a pool, one like those of its
    workers. why: the choice of engine in words. key: identifies the measured times in the store."""

    predictor: Predictor
    engine: Engine
    preprocess: Preprocess
    task: Task
    why: str
    names: tuple[str, ...] | None
    key: str
    stored: Stored | None = None

    def keep_profile(self) -> None:
        """Keep the measured times for the next start."""
        if self.stored is not None:
            # Cameras warm no size that they cannot fill: times of larger sizes from an earlier start stay.
            known = self.stored.profile(self.key) or {}
            self.stored.keep_profile(self.key, {**known, **self.predictor.profile.table})

    def workers(self) -> list[dict[str, Any]]:
        """Device and restarts of each worker process, for the report."""
        return [{"device": w.device, "restarts": w.restarts} for w in self.predictor.workers()]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A model and its engine. `engine(device, threads)` and `preprocess()` make new ones that are not opened."""

    engine: Callable[[str, int], Engine]
    preprocess: Callable[[], Preprocess]
    devices: tuple[str, ...]
    why: str
    names: tuple[str, ...] | None
    stored: Stored | None = None

    def known(self, key: str) -> Mapping[int, Timing] | None:
        """Measured times of an earlier start, or of an earlier worker."""
        return self.stored.profile(key) if self.stored is not None else None


def build_predictor(name: str, options: ModelOptions | None = None, events: PredictorEvents | None = None) -> Model:
    """Find, load, convert and choose; takes seconds, and more at a model's first use. Any thread.

    name: lite0, probe, a torchvision name, timm:NAME, or the path of an .onnx, .pt2 or .pt file.

    :raises UsageError: if the model, its labels, its engine or the device cannot be had.
    """
    options = options or ModelOptions()
    chosen = _choose(name, options)
    task = options.task(chosen.names, options.topk)
    if options.workers is not None:
        return _pool(chosen, task, options, options.workers, events)
    threads = options.threads or cores()
    engine = chosen.engine(chosen.devices[0], threads)
    predictor_options, key = _predictor_options(chosen, engine, threads, options)
    preprocess = chosen.preprocess()
    predictor = AsyncBatchPredictor(engine, preprocess, task, predictor_options, events=events)
    return Model(predictor, engine, preprocess, task, chosen.why, chosen.names, key, chosen.stored)


def _pool(chosen: _Chosen, task: Task, options: ModelOptions, workers: int, events: PredictorEvents | None) -> Model:
    """A pool of worker processes: each has a GPU of its own, or a share of the cores."""
    threads = options.threads or share(workers)
    like = chosen.engine(chosen.devices[0], threads)
    predictor_options, key = _predictor_options(chosen, like, threads, options)

    def make(k: int, events: PredictorEvents) -> tuple[WorkerEngine, AsyncBatchPredictor]:
        engine = WorkerEngine(chosen.engine(chosen.devices[k], threads))
        # The successor of a lost worker need not measure again.
        own = replace(predictor_options, label=f"worker{k}", known=chosen.known(key))
        return engine, AsyncBatchPredictor(engine, chosen.preprocess(), task, own, events=events)

    preprocess = chosen.preprocess()
    why = f"{chosen.why}; workers: {workers}" + (f", threads of each: {threads}" if like.device == "cpu" else "")
    pool = Pool(make, PoolOptions(workers), events=events)
    return Model(pool, like, preprocess, task, why, chosen.names, key, chosen.stored)


# The choice.


def _choose(name: str, options: ModelOptions) -> _Chosen:
    labels = read_labels(options.labels) if options.labels is not None else None
    return _probe(options, labels) if name == PROBE else _network(catalog.find(name), options, labels)


def _probe(options: ModelOptions, labels: tuple[str, ...] | None) -> _Chosen:
    if options.device.startswith("cuda"):
        raise UsageError(f"`device` {options.device}: the probe has no use for a GPU; leave `device` out")
    names = labels or tuple(str(k) for k in range(CLASSES))
    devices = ("cpu",) * (options.workers or 1)
    return _Chosen(
        lambda device, threads: ProbeEngine(*options.probe_s), ProbePreprocess, devices, "the answer is the mean luma", names
    )


def _network(name: catalog.ModelName, options: ModelOptions, labels: tuple[str, ...] | None) -> _Chosen:
    """The files of the store where the kind that runs the model reads files, or where several kinds are compared; else the
    network itself."""
    devices = autoselect.devices("cpu" if options.precision == "int8" else options.device, options.workers or 1)
    kinds = autoselect.kinds(options.engine, devices[0], name.kind)
    if len(kinds) == 1 and not kinds[0].reads_files:
        return _loaded(name, kinds[0], options, devices, labels)
    return _converted(name, options, devices, labels)


def _converted(
    name: catalog.ModelName, options: ModelOptions, devices: tuple[str, ...], labels: tuple[str, ...] | None
) -> _Chosen:
    """The model's files in the store. They are written at its first use on this kind of device."""
    device = devices[0]
    conditions = Conditions(options.task(None, options.topk), device, pictures=options.pictures)
    store = ModelStore(options.cache or default_cache())
    identity = name.identity if device == "cpu" else f"{name.identity} cuda"
    stored = store.get(identity, lambda folder: convert(name, folder, conditions))
    facts = stored.facts()
    engine, precision, why = autoselect.engine(
        facts.choice, options.engine, options.precision, device, stills=options.load.stills
    )
    folder = stored.folder
    if precision == "int8":
        calibrated = autoselect.calibrated(stored, name.text)
        folder, record = calibrated.folder, calibrated.record()
        why += f"; {record.figures()}{record.forced()}"
    kind, apart, bulk = kind_of(engine), options.workers is not None, options.load.bulk
    prepared = Prepared(partial(catalog.load, name.text), folder, facts.batch)
    single_ms = autoselect.single_ms(facts, precision)

    def make(device: str, threads: int) -> Engine:
        parallel = 1
        if kind.side_by_side and not apart:
            parallel = places(threads, single_ms, None if bulk else 1e3 * options.budget_s)
        return kind.engine(prepared, EnginePlace(device, precision, threads, parallel, apart))

    return _Chosen(make, _rgb(facts.input, options), devices, why, labels or facts.names, stored)


def _loaded(
    name: catalog.ModelName,
    kind: EngineKind,
    options: ModelOptions,
    devices: tuple[str, ...],
    labels: tuple[str, ...] | None,
) -> _Chosen:
    """A network that its engine runs as it is loaded."""
    autoselect.check_precision(kind, options.precision)
    precision = "fp32" if options.precision == "auto" else options.precision
    loaded, apart = name.load(), options.workers is not None
    prepared = Prepared(partial(catalog.load, name.text), batch=loaded.batch, loaded=None if apart else loaded)

    def make(device: str, threads: int) -> Engine:
        return kind.engine(prepared, EnginePlace(device, precision, threads, apart=apart))

    why = f"{kind.name} {precision} on {devices[0]}" + (": there is a GPU" if options.engine == "auto" else "")
    return _Chosen(make, _rgb(loaded.input, options), devices, why, labels or loaded.names)


def _rgb(spec: InputSpec, options: ModelOptions) -> Callable[[], Preprocess]:
    return lambda: RgbPreprocess(spec, options.fit)


# The size.


def places(threads: int, single_ms: float | None, budget_ms: float | None) -> int:
    """Batches that the CPU computes side by side; they share the threads. single_ms: time of one frame on one thread, None if
    it is unknown; budget_ms: None if no frame has a deadline.

    As many as there are threads, but with cameras only as long as a single frame takes no more than a part of the budget. A
    batch over all cores spins at the end of every layer until the thread on a decoder's core is done: with
    eight 720p cameras on 2 cores, batches of any size took twice their time (bf16: 4 frames 25 ms; 13 without decoders), and a
    third of a frame's CPU time was waste.
    """
    most = range(1, min(threads, MOST_PARALLEL) + 1)
    if budget_ms is None:
        return most[-1]
    if single_ms is None:
        return 1
    return max((p for p in most if single_ms / (threads // p) <= SINGLE_SHARE * budget_ms), default=1)


def largest_batch(engine: Engine, load: Load, max_batch: int) -> int:
    """The largest batch that an engine is given."""
    largest = load.largest(max_batch)
    return largest if engine.parallel == 1 or load.bulk else min(largest, SHARED_BATCH)


def _predictor_options(chosen: _Chosen, engine: Engine, threads: int, options: ModelOptions) -> tuple[PredictorOptions, str]:
    """The predictor's options, and the key of its measured times."""
    parallel = engine.parallel
    each = f"{parallel} times {threads // parallel} threads of {cores()} cores"
    key = f"{engine.name} {engine.precision} {engine.device} {each} {cpu_name()}"
    scheduler = SchedulerOptions(
        options.budget_s,
        largest_batch(engine, options.load, options.max_batch),
        options.max_wait_s,
        slots=parallel + 1,
        parallel=parallel,
        batching=options.batching,
    )
    made = PredictorOptions(known=chosen.known(key), bulk=options.load.bulk, stagers=_stagers(options), scheduler=scheduler)
    return made, key


def _stagers(options: ModelOptions) -> int | None:
    """Workers share the cores, so their predictors do too."""
    if options.stagers is not None or options.workers is None:
        return options.stagers
    return max(1, cores() // 4 // options.workers)
