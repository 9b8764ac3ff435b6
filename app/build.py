"""From settings to parts: the only place that names concrete classes. A new source, engine or sink is one line here."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from app.bench.player import Player
from app.calibrate.fidelity import figures, forced
from app.config import Settings
from app.machine.machine import resident_mb
from app.streams import StreamPlan
from pipelines.choices import Batching
from pipelines.cores import cores, cpu_name, share
from pipelines.errors import UsageError
from pipelines.frame import Frame, Picture, Prediction
from pipelines.lane import Outputs, Render
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.lazy_torch import NamedTorchEngine
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.probe import CLASSES, ProbeEngine
from pipelines.predict.interface import Predictor
from pipelines.predict.models import autoselect, catalog
from pipelines.predict.models.names import PROBE
from pipelines.predict.models.store import Calibrated, ModelStore, Stored
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import InputSpec, Preprocess, ProbePreprocess, RgbPreprocess
from pipelines.predict.scheduling.options import SchedulerOptions
from pipelines.predict.scheduling.profile import Timing
from pipelines.predict.workers.pool import Pool
from pipelines.predict.workers.supervisor import PoolOptions
from pipelines.predict.workers.worker_engine import WorkerEngine
from pipelines.render import text
from pipelines.render.overlay import Overlay
from pipelines.render.style import OverlayStyle
from pipelines.sinks.jsonl import JsonLines, Text
from pipelines.sinks.sink import Screen, Sink
from pipelines.sinks.video import VideoFile, VideoOptions
from pipelines.sources import build
from pipelines.sources.files.file import FileSource
from pipelines.sources.source import Source, Unheard
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.stream_spec import StreamOptions, StreamSpec
from pipelines.tasks.classification import ClassificationTask
from pipelines.tasks.task import Task
from samples import FOLDER

log = logging.getLogger("watchline.build")

FONTS_S = 4.0
"""Most that finding the labels' fonts may add to the start. One desktop's whole collection takes about 2 s."""
MOST_PARALLEL = 8
"""Batches side by side at most: each has a slot, and the working memory of a batch."""
SHARED_BATCH = 8
"""Largest batch of cameras where several run side by side. A frame on one thread costs least in batches of 2 to 4 (bf16,
images/s of two threads: 178, 191, 185, 161, 141 in batches of 1, 2, 4, 8, 16), and each size in each place takes memory."""
SINGLE = 0.5
"""Share of the budget that a single frame may take on the threads of one place."""
SAMPLE_PICTURES, SAMPLE_STEP = 48, 12
"""Frames of the shipped sample on which engines are compared, and the distance from one to the next."""
SHOWN_LABELS = 5
"""Rows of the overlay's panel, however many labels the JSON lines hold."""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where converted models are kept: WATCHLINE_CACHE, else the user's cache folder."""
    if environ.get("WATCHLINE_CACHE"):
        return Path(environ["WATCHLINE_CACHE"])
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "watchline"


# Sources.


def decoders(at_once: int) -> int:
    """Decoder threads of each of `at_once` files: together half of the cores, at least one each."""
    return max(1, cores() // 2 // max(at_once, 1))


def make_camera(spec: StreamSpec, stop: threading.Event, start_s: float) -> Source:
    """A live source for any stream: a file is played as a camera sends it. start_s: time of its first frame
    (monotonic), unless it is a camera.

    :raises UsageError: if the source cannot be opened several times.
    """
    if spec.kind == "file":
        return Player(Path(spec.address), start_s=start_s)
    if spec.kind == "synthetic":
        return SyntheticSource(Synthetic.parse(spec.address), start_s=start_s)
    if spec.kind == "rtsp":
        return build.make_source(spec, stop)
    raise UsageError(f"{spec.name!r} cannot be read many times at once; give a clip, rtsp:// or synthetic:WxH@FPS")


# Predictor.


def sample_pictures() -> list[Picture]:
    """Pictures from all over the shipped sample, on which engines and precisions are compared."""
    captures = FileSource(FOLDER / "sample.mp4").frames(threading.Event(), Unheard())
    chosen = (c.picture for index, c in enumerate(captures) if index % SAMPLE_STEP == SAMPLE_STEP // 2)
    return list(islice(chosen, SAMPLE_PICTURES))


@dataclass(frozen=True, slots=True)
class Load:
    """The work of a predictor. `cameras`: number of live streams. `files`: there may be files too. `stills`: there are
    only pictures. `requests`: a caller waits for each picture."""

    cameras: int = 0
    files: bool = True
    stills: bool = False
    requests: bool = False

    @staticmethod
    def of(streams: Iterable[StreamPlan], settings: Settings) -> Load:
        """The load of the planned streams. An address over HTTP may be a file or a stream without end; it counts as both."""
        streams = list(streams)
        stored = sum(s.stored for s in streams)
        return Load(
            cameras=max(len(streams) if settings.realtime else len(streams) - stored, settings.max_streams or 0),
            files=not settings.realtime and (stored > 0 or any(s.spec.kind == "network" for s in streams)),
            stills=all(s.spec.kind == "images" for s in streams),
        )

    @property
    def bulk(self) -> bool:
        """Whether no single frame has a deadline."""
        return self.cameras == 0 and not self.requests

    def largest(self, max_batch: int) -> int:
        """The largest batch that can occur: a camera has at most one waiting frame."""
        return max_batch if self.files or self.requests else max(1, min(max_batch, self.cameras))


REQUESTS = Load(files=False, requests=True)


@dataclass(frozen=True, slots=True)
class Model:
    """The predictor with facts about its model. `engine`: the one that runs it (in a pool, one like those of the workers,
    unopened); `why`: the choice in words; `key`: of its measured times in the store."""

    predictor: Predictor
    engine: Engine
    preprocess: Preprocess
    why: str
    stored: Stored | None
    names: tuple[str, ...] | None
    key: str
    task: Task

    def keep_profile(self) -> None:
        """Remember the measured times for the next start."""
        if self.stored is not None:
            # Cameras warm no size that they cannot fill: the times of larger sizes from an earlier start stay.
            known = self.stored.profile(self.key) or {}
            self.stored.keep_profile(self.key, {**known, **self.predictor.profile.table})

    def workers(self) -> list[dict[str, Any]]:
        """For the report: the device of each worker of a pool, and the number of its restarts."""
        found = self.predictor.workers()
        return [{"device": w.device, "restarts": w.restarts} for w in found]

    def memory_mb(self) -> float:
        """Memory of the GPUs; without a GPU, of this process and its workers."""
        return self.predictor.memory_mb() + (resident_mb() if self.engine.device == "cpu" else 0.0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model with its engine. `engine(device, threads)` and `preprocess()` make new, unopened ones."""

    engine: Callable[[str, int], Engine]
    preprocess: Callable[[], Preprocess]
    devices: tuple[str, ...]
    why: str
    names: tuple[str, ...] | None
    stored: Stored | None = None

    def known(self, key: str) -> Mapping[int, Timing] | None:
        """Measured times of an earlier start, or of an earlier worker."""
        return self.stored.profile(key) if self.stored is not None else None


def make_model(settings: Settings, events: PredictorEvents, load: Load) -> Model:
    """Load the model, up to a predictor that can be entered. Takes seconds, and more at a model's first use.

    :raises UsageError: if the model, its labels or the device is not there.
    """
    if settings.workers is not None:
        return make_pool(settings, settings.workers, events, load)
    chosen = _chosen(settings, 1, load, apart=False)
    threads = settings.threads or cores()
    engine = chosen.engine(chosen.devices[0], threads)
    options, key = _options(settings, chosen, engine, threads, load, "dynamic")
    preprocess = chosen.preprocess()
    task = ClassificationTask(chosen.names, settings.topk)
    predictor = AsyncBatchPredictor(engine, preprocess, task, options, events=events)
    return Model(predictor, engine, preprocess, chosen.why, chosen.stored, chosen.names, key, task)


def make_pool(
    settings: Settings, workers: int, events: PredictorEvents, load: Load = REQUESTS, *, batching: Batching = "dynamic"
) -> Model:
    """The same with a pool of `workers` processes: each has a GPU of its own, or a share of the cores."""
    chosen = _chosen(settings, workers, load, apart=True)
    threads = settings.threads or share(workers)
    like = chosen.engine(chosen.devices[0], threads)
    options, key = _options(settings, chosen, like, threads, load, batching)
    task = ClassificationTask(chosen.names, settings.topk)

    def make(k: int, events: PredictorEvents) -> tuple[WorkerEngine, AsyncBatchPredictor]:
        engine = WorkerEngine(chosen.engine(chosen.devices[k], threads))
        # A worker that replaces another one need not measure again.
        own = replace(options, label=f"worker{k}", known=chosen.known(key))
        return engine, AsyncBatchPredictor(engine, chosen.preprocess(), task, own, events=events)

    preprocess = chosen.preprocess()
    why = f"{chosen.why}; workers: {workers}" + (f", threads of each: {threads}" if like.device == "cpu" else "")
    pool = Pool(make, PoolOptions(workers), preprocess, events=events)
    return Model(pool, like, preprocess, why, chosen.stored, chosen.names, key, task)


def _chosen(settings: Settings, workers: int, load: Load, *, apart: bool) -> Chosen:
    """apart: the engines will be opened in other processes."""
    labels = catalog.read_labels(Path(settings.labels)) if settings.labels is not None else None
    if settings.model == PROBE:
        if settings.device.startswith("cuda"):
            raise UsageError(f"--device {settings.device}: the probe has no use for a GPU; leave --device out")
        times_s = 1e-3 * settings.probe_ms_per_batch, 1e-3 * settings.probe_ms_per_frame
        names = labels or tuple(str(k) for k in range(CLASSES))
        why = "the answer is the mean luma"
        return Chosen(lambda device, threads: ProbeEngine(*times_s), ProbePreprocess, ("cpu",) * workers, why, names)
    return _network(settings, workers, labels, load, apart=apart)


def _network(settings: Settings, workers: int, labels: tuple[str, ...] | None, load: Load, *, apart: bool) -> Chosen:
    name = catalog.find(settings.model)
    store = ModelStore(cache_folder())
    int8 = settings.precision == "int8"
    devices = autoselect.devices("cpu" if int8 else settings.device, workers)
    torch_precision = "fp32" if settings.precision == "auto" else settings.precision
    if devices[0] != "cpu" or settings.engine == "torch":
        if settings.engine == "openvino":
            raise UsageError(f"--engine openvino runs on the CPU only, not on {devices[0]}; use --engine torch or --device cpu")
        network = name.load()
        make = _named(name, torch_precision, network.batch) if apart else _torch(network, torch_precision)
        why = f"torch {torch_precision} on {devices[0]}" + ("" if settings.engine == "torch" else ": there is a GPU")
        return Chosen(make, rgb(network.input, settings), devices, why, labels or network.names)
    stored = store.get(name.identity, lambda folder: autoselect.convert(name, folder, cores(), sample_pictures))
    facts = stored.facts()
    engine, precision, why = autoselect.engine(facts, settings.engine, settings.precision, stills=load.stills)
    if engine == "openvino":
        kept = autoselect.calibrated(stored, settings.model) if int8 else stored
        if isinstance(kept, Calibrated):
            why += f"; {figures(kept.record())}{forced(kept.record())}"
        compiled = kept.folder / "compiled"
        known = facts.choice.get("single_ms", {})
        single_ms = known.get(precision, known.get("bf16", known.get("fp32")))

        def make(device: str, threads: int) -> Engine:
            parallel = 1 if apart else places(threads, single_ms, None if load.bulk else settings.budget_ms)
            return OpenVinoEngine(kept.model, precision, threads, compiled, facts.batch, parallel)

    else:
        make = _named(name, precision, facts.batch) if apart else _torch(name.load(), precision)
    return Chosen(make, rgb(facts.input, settings), devices, why, labels or facts.names, stored)


def places(threads: int, single_ms: float | None, budget_ms: float | None) -> int:
    """Batches that the CPU computes side by side, which share the threads. single_ms: time of a frame on one thread, None:
    unknown; budget_ms: latency budget, None: there is none.

    One for each thread. With a budget, fewer: a single frame may take no more than a part of it. A batch over all cores waits
    at the end of every layer for the thread that shares its core with a decoder, and spins meanwhile: with
    eight 720p cameras on 2 cores, batches of any size took twice their time, as if there were one (bf16: 4 frames 25 ms, 13
    when nobody decodes), and a third of a frame's CPU time was waste.
    """
    most = range(1, min(threads, MOST_PARALLEL) + 1)
    if budget_ms is None:
        return most[-1]
    if single_ms is None:
        return 1
    return max((p for p in most if single_ms / (threads // p) <= SINGLE * budget_ms), default=1)


def rgb(spec: InputSpec, settings: Settings) -> Callable[[], Preprocess]:
    return functools.partial(RgbPreprocess, spec, settings.fit)


def _torch(network: catalog.LoadedModel, precision: str) -> Callable[[str, int], Engine]:
    from pipelines.predict.engines import torch as engine

    def make(device: str, threads: int) -> Engine:
        there: engine.Device = engine.HostDevice() if device == "cpu" else engine.CudaDevice(device)
        return engine.TorchEngine(network, device=there, precision=precision, threads=threads)

    return make


def _named(name: catalog.ModelName, precision: str, batch: int | None) -> Callable[[str, int], Engine]:
    return lambda device, threads: NamedTorchEngine(name.text, device, precision, threads, batch)


def batches(settings: Settings, engine: Engine, load: Load) -> tuple[int, int]:
    """The number of batches that the engine computes side by side, and the size of the largest."""
    parallel = engine.parallel
    largest = load.largest(settings.max_batch)
    return parallel, largest if parallel == 1 or load.bulk else min(largest, SHARED_BATCH)


def _options(
    settings: Settings, chosen: Chosen, engine: Engine, threads: int, load: Load, batching: Batching
) -> tuple[PredictorOptions, str]:
    """The options for a predictor of this engine, and the key of its measured times."""
    wait_s = None if settings.max_wait_ms is None else 1e-3 * settings.max_wait_ms
    parallel, max_batch = batches(settings, engine, load)
    each = f"{parallel} times {threads // parallel} threads of {cores()} cores"
    key = f"{engine.name} {engine.precision} {engine.device} {each} {cpu_name()}"
    options = PredictorOptions(
        known=chosen.known(key),
        bulk=load.bulk,
        stagers=settings.stagers,
        scheduler=SchedulerOptions(
            1e-3 * settings.budget_ms, max_batch, wait_s, slots=parallel + 1, parallel=parallel, batching=batching
        ),
    )
    return options, key


# Outputs.


def encoders(at_once: int, options: StreamOptions) -> int:
    """Most encoder threads of each file, if `at_once` files are encoded at the same time. With one thread, a file is encoded no
    faster than one core can while another core is idle. All together are half as many again as cores, since each thread waits
    for rows of the picture before. One thread if a stream skips frames: each further thread holds a frame back, and
    `VideoFile` knows only the rate of the source."""
    if options.stride > 1 or options.max_fps is not None:
        return 1
    return max(1, 3 * cores() // 2 // max(at_once, 1))


def make_sinks(stream: StreamPlan, *, live: bool, threads: int = 1) -> list[Sink]:
    """The required outputs of a stream. threads: of an encoder, at most."""
    if stream.output is None:
        return []
    return [VideoFile(stream.output, VideoOptions(live=live, threads=threads))]


def make_lines(settings: Settings, stdout: Text, task: Task) -> JsonLines | None:
    """The JSON lines, if they were asked for."""
    if settings.jsonl is None:
        return None
    return JsonLines(stdout if settings.jsonl == "-" else Path(settings.jsonl), task.as_dict)


def outputs(stream: StreamPlan, sinks: list[Sink], screen: Screen | None, model: Model, *, live: bool, topk: int) -> Outputs:
    """The outputs of a lane. Pictures are drawn on only if a video or a screen shows them."""
    looked_at = screen is not None or stream.output is not None
    screens = () if screen is None else (screen,)
    if not looked_at:
        return Outputs(sinks, screens)
    only_screen = stream.output is None
    render, prepare = _render(model, live=live, topk=stream.spec.options.topk or topk)
    return Outputs(sinks, screens, render, None if only_screen else prepare, only_screen)


def find_fonts(model: Model, streams: Iterable[StreamPlan], keep_on: Callable[[], bool]) -> None:
    """Find fonts for the names of the streams and labels before the first overlay."""
    found = text.find_fonts([*(s.name for s in streams), *(model.names or ())], FONTS_S, keep_on)
    if not found and keep_on():
        log.warning("no fonts for all labels within %g s; characters without a font are drawn as %s", FONTS_S, text.MISSING)


def _render(model: Model, *, live: bool, topk: int) -> tuple[Render, Callable[[], None]]:
    """The function that draws on pictures, and one that prepares it in the calling thread: each thread has an overlay of its
    own, since a font engine belongs to a thread."""
    local = threading.local()
    preprocess = model.preprocess

    def prepare() -> None:
        local.overlay = Overlay(OverlayStyle(topk=min(topk, SHOWN_LABELS)), wall_clock=live)
        local.overlay.prepare()

    def render(frame: Frame, prediction: Prediction) -> Picture:
        if not hasattr(local, "overlay"):
            prepare()
        picture = frame.picture
        boxes = {region.name: box for region in frame.regions if (box := preprocess.box(picture, region)) is not None}
        drawn: Picture = local.overlay.render(frame, prediction, boxes)
        return drawn

    return render, prepare
