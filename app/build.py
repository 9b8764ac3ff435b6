"""From settings to parts: the only place that names concrete classes. A new source, engine or sink is one line here."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from app import choose
from app.config import Settings
from app.cores import cores, share
from app.likeness import figures, forced
from app.machine import resident_mb
from app.plan import StreamPlan
from pipelines.errors import SourceError, UsageError
from pipelines.frame import Frame, Picture, Prediction
from pipelines.lane import Outputs, Render
from pipelines.predict import models
from pipelines.predict.engines.engine import Engine
from pipelines.predict.engines.named import NamedTorchEngine
from pipelines.predict.engines.openvino import OpenVinoEngine
from pipelines.predict.engines.probe import CLASSES, ProbeEngine
from pipelines.predict.engines.worker import WorkerEngine
from pipelines.predict.policy import SchedulerOptions
from pipelines.predict.pool import Pool, PoolOptions
from pipelines.predict.predictor import AsyncBatchPredictor, PredictorEvents, PredictorOptions
from pipelines.predict.preprocess import Fit, InputSpec, Preprocess, ProbePreprocess, RgbPreprocess
from pipelines.predict.requests import Batching
from pipelines.predict.store import Calibrated, ModelStore, Stored
from pipelines.render import text
from pipelines.render.overlay import Overlay, OverlayStyle
from pipelines.sinks.jsonl import JsonLines, Text
from pipelines.sinks.null import NullSink
from pipelines.sinks.sink import Log, Screen, Sink
from pipelines.sinks.video import VideoFile, VideoOptions
from pipelines.sources.file import FileSource
from pipelines.sources.images import ImagesSource
from pipelines.sources.interlace import Interlace
from pipelines.sources.network import NetworkSource, Unopened, has_end
from pipelines.sources.opening import Limits
from pipelines.sources.pace import Loop, Realtime
from pipelines.sources.reconnect import Reconnect
from pipelines.sources.rtsp.options import Client, RtspOptions, Transport
from pipelines.sources.rtsp.source import RtspSource
from pipelines.sources.source import Source
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.sources.webcam import WebcamSource

log = logging.getLogger("watchline.build")

FONTS_S = 4.0
"""Most that finding the labels' fonts may add to the start. One desktop's whole collection takes about 2 s."""
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
    """Decoder threads of each file, where so many are worked on at once: together half of the cores, and one each at least."""
    return max(1, cores() // 2 // max(at_once, 1))


def make_source(stream: StreamPlan, settings: Settings, stop: threading.Event, *, threads: int = 1) -> Source:
    """The source of a stream, with pacing, looping and retry around it as they were asked for. Opens nothing, except to
    see whether what an address over HTTP offers is a file; that may take as long as the open limit. threads: of the
    decoder, if it is a file."""
    return Interlace(_source(stream, settings, stop, threads), mend=settings.deinterlace)


def _source(stream: StreamPlan, settings: Settings, stop: threading.Event, threads: int) -> Source:
    limits = Limits(settings.open_timeout, settings.read_timeout)
    if stream.kind == "file":
        return _paced(FileSource(Path(stream.address), threads=threads, limits=limits), settings)
    if stream.kind == "images":
        return _paced(ImagesSource(stream.pictures), settings)
    if stream.kind == "synthetic":
        return SyntheticSource(Synthetic.parse(stream.address))
    failed: list[SourceError] = []
    if stream.kind == "network" and stream.address.startswith("http"):
        try:
            if has_end(stream.address, limits, stop):
                return _paced(NetworkSource(stream.address, live=False, limits=limits, threads=threads), settings)
        except SourceError as error:
            failed.append(error)

    camera = RtspOptions(
        cast(Client, settings.rtsp_client), cast(Transport, settings.rtsp_transport), limits,
        tls_verify=settings.tls_verify, clock_trusted=settings.camera_clock_trusted,
    )  # fmt: skip

    def session() -> Source:
        if failed:
            return Unopened(failed.pop())
        if stream.kind == "rtsp":
            return RtspSource(stream.address, camera)
        if stream.kind == "device":
            return WebcamSource(Path(stream.address), limits=limits)
        return NetworkSource(stream.address, live=True, limits=limits)

    return Reconnect(session) if settings.reconnect else session()


def _paced(source: Source, settings: Settings) -> Source:
    looped = Loop(source) if settings.loop else source
    return Realtime(looped) if settings.realtime else looped


# Predictor.


@dataclass(frozen=True, slots=True)
class Model:
    """The predictor with what the rest needs to know of its model. `engine`: what runs it (in a pool, one like those of the
    workers, unopened); `why`: what was chosen, in words; `key`: what its measured times belong to."""

    predictor: AsyncBatchPredictor | Pool
    engine: Engine
    preprocess: Preprocess
    why: str
    stored: Stored | None
    names: tuple[str, ...] | None
    key: str

    def keep_profile(self) -> None:
        """Remember the measured times for the next start."""
        if self.stored is not None:
            self.stored.keep_profile(self.key, self.predictor.profile.table)

    def workers(self) -> list[dict[str, Any]]:
        """Of a pool, for the report: what each worker ran on, and how often it was replaced."""
        found = self.predictor.workers if isinstance(self.predictor, Pool) else []
        return [{"device": w.device, "restarts": w.restarts} for w in found]

    def memory_mb(self) -> float:
        """Of the GPUs; where there are none, of this process and its workers."""
        if isinstance(self.predictor, Pool):
            return self.predictor.memory_mb() + (resident_mb() if self.engine.device == "cpu" else 0.0)
        memory = self.engine.memory_mb()
        return resident_mb() if memory is None else memory


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model, and what runs it. `engine(device, threads)` and `preprocess()` make one that nobody has opened yet."""

    engine: Callable[[str, int], Engine]
    preprocess: Callable[[], Preprocess]
    devices: tuple[str, ...]
    why: str
    names: tuple[str, ...] | None
    stored: Stored | None = None


def make_model(settings: Settings, events: PredictorEvents, *, stills: bool = False) -> Model:
    """Load what must be loaded before the predictor can be entered. Takes seconds, and a minute at a model's first use.

    stills: all sources are pictures.

    :raises UsageError: if the model, its labels or the device cannot be had.
    """
    if settings.workers is not None:
        return make_pool(settings, settings.workers, events, stills=stills)
    chosen = _chosen(settings, 1, stills=stills, apart=False)
    engine = chosen.engine(chosen.devices[0], settings.threads or cores())
    options, key = _options(settings, chosen, engine, settings.threads or cores(), "dynamic")
    preprocess = chosen.preprocess()
    predictor = AsyncBatchPredictor(engine, preprocess, options, events=events)
    return Model(predictor, engine, preprocess, chosen.why, chosen.stored, chosen.names, key)


def make_pool(
    settings: Settings, workers: int, events: PredictorEvents, *, batching: Batching = "dynamic", stills: bool = False
) -> Model:
    """The same with a pool of so many worker processes: each has a GPU of its own, or a share of the cores."""
    chosen = _chosen(settings, workers, stills=stills, apart=True)
    threads = settings.threads or share(workers)
    like = chosen.engine(chosen.devices[0], threads)
    options, key = _options(settings, chosen, like, threads, batching)

    def make(k: int, events: PredictorEvents) -> AsyncBatchPredictor:
        engine = WorkerEngine(chosen.engine(chosen.devices[k], threads))
        return AsyncBatchPredictor(engine, chosen.preprocess(), replace(options, label=f"worker{k}"), events=events)

    preprocess = chosen.preprocess()
    why = f"{chosen.why}; workers: {workers}" + (f", threads of each: {threads}" if like.device == "cpu" else "")
    pool = Pool(make, PoolOptions(workers), preprocess, events=events)
    return Model(pool, like, preprocess, why, chosen.stored, chosen.names, key)


def _chosen(settings: Settings, workers: int, *, stills: bool, apart: bool) -> Chosen:
    """apart: the engines will be opened in other processes."""
    labels = models.read_labels(Path(settings.labels)) if settings.labels is not None else None
    if settings.model == models.PROBE:
        if settings.device.startswith("cuda"):
            raise UsageError(f"--device {settings.device}: the probe has no use for a GPU; leave --device out")
        times_s = 1e-3 * settings.probe_ms_per_batch, 1e-3 * settings.probe_ms_per_frame
        names = labels or tuple(str(k) for k in range(CLASSES))
        why = "the answer is the mean luma"
        return Chosen(lambda device, threads: ProbeEngine(*times_s), ProbePreprocess, ("cpu",) * workers, why, names)
    return _network(settings, workers, labels, stills=stills, apart=apart)


def _network(settings: Settings, workers: int, labels: tuple[str, ...] | None, *, stills: bool, apart: bool) -> Chosen:
    name = models.find(settings.model)
    store = ModelStore(cache_folder())
    int8 = settings.precision == "int8"
    devices = choose.devices("cpu" if int8 else settings.device, workers)
    torch_precision = "fp32" if settings.precision == "auto" else settings.precision
    if devices[0] != "cpu" or settings.engine == "torch":
        if settings.engine == "openvino":
            raise UsageError(f"--engine openvino runs on the CPU only, not on {devices[0]}; use --engine torch or --device cpu")
        network = name.load()
        make = _named(name, torch_precision, network.batch) if apart else _torch(network, torch_precision)
        why = f"torch {torch_precision} on {devices[0]}" + ("" if settings.engine == "torch" else ": there is a GPU")
        return Chosen(make, rgb(network.input, settings), devices, why, labels or network.names)
    stored = store.get(name.identity, lambda folder: choose.convert(name, folder, cores()))
    facts = stored.facts()
    engine, precision, why = choose.engine(facts, settings.engine, settings.precision, stills=stills)
    if engine == "openvino":
        kept = choose.calibrated(stored, settings.model) if int8 else stored
        if isinstance(kept, Calibrated):
            why += f"; {figures(kept.record())}{forced(kept.record())}"
        compiled = kept.folder / "compiled"
        make = lambda device, threads: OpenVinoEngine(kept.model, precision, threads, compiled, facts.batch)  # noqa: E731
    else:
        make = _named(name, precision, facts.batch) if apart else _torch(name.load(), precision)
    return Chosen(make, rgb(facts.input, settings), devices, why, labels or facts.names, stored)


def rgb(spec: InputSpec, settings: Settings) -> Callable[[], Preprocess]:
    return functools.partial(RgbPreprocess, spec, cast(Fit, settings.fit))


def _torch(network: models.Network, precision: str) -> Callable[[str, int], Engine]:
    from pipelines.predict.engines import torch as engine

    def make(device: str, threads: int) -> Engine:
        there: engine.Device = engine.HostDevice() if device == "cpu" else engine.CudaDevice(device)
        return engine.TorchEngine(network, device=there, precision=precision, threads=threads)

    return make


def _named(name: models.ModelName, precision: str, batch: int | None) -> Callable[[str, int], Engine]:
    return lambda device, threads: NamedTorchEngine(name.text, device, precision, threads, batch)


def _options(
    settings: Settings, chosen: Chosen, engine: Engine, threads: int, batching: Batching
) -> tuple[PredictorOptions, str]:
    """What a predictor of this engine is told, and what its measured times belong to."""
    wait_s = None if settings.max_wait_ms is None else 1e-3 * settings.max_wait_ms
    key = f"{engine.name} {engine.precision} {engine.device} {threads} threads of {cores()} cores {choose.cpu_name()}"
    options = PredictorOptions(
        profile=engine.shape(settings.max_batch) if isinstance(engine, ProbeEngine) else None,
        topk=settings.topk,
        names=chosen.names,
        known=chosen.stored.profile(key) if chosen.stored is not None else None,
        scheduler=SchedulerOptions(1e-3 * settings.budget_ms, settings.max_batch, wait_s, batching=batching),
    )
    return options, key


# Outputs.


def make_sinks(stream: StreamPlan, *, live: bool) -> list[Sink]:
    """The required outputs of a stream."""
    if stream.output is None:
        return [NullSink()]
    return [VideoFile(stream.output, VideoOptions(live=live))]


def make_log(settings: Settings, stdout: Text) -> Log | None:
    """The JSON lines, if they were asked for."""
    if settings.jsonl is None:
        return None
    return JsonLines(stdout if settings.jsonl == "-" else Path(settings.jsonl))


def outputs(
    stream: StreamPlan, sinks: list[Sink], screen: Screen | None, log: Log | None, model: Model, *, live: bool, topk: int
) -> Outputs:
    """What a lane is given. Pictures are drawn on only where somebody looks at them."""
    looked_at = screen is not None or stream.output is not None
    if not looked_at:
        return Outputs(sinks, screen, log)
    only_screen = stream.output is None
    render, prepare = _render(model, live=live, topk=topk)
    return Outputs(sinks, screen, log, render, None if only_screen else prepare, only_screen)


def find_fonts(model: Model, streams: Iterable[StreamPlan], keep_on: Callable[[], bool]) -> None:
    """For all that overlays will write."""
    found = text.find_fonts([*(s.name for s in streams), *(model.names or ())], FONTS_S, keep_on)
    if not found and keep_on():
        log.warning("no fonts for all labels within %g s; what has none by now is drawn as %s", FONTS_S, text.MISSING)


def _render(model: Model, *, live: bool, topk: int) -> tuple[Render, Callable[[], None]]:
    """How pictures are drawn on, and what makes that ready in the thread that will do it: each has an overlay of its own,
    for a font engine belongs to a thread."""
    local = threading.local()
    preprocess = model.preprocess

    def prepare() -> None:
        local.overlay = Overlay(OverlayStyle(topk=min(topk, SHOWN_LABELS)), wall_clock=live)
        local.overlay.prepare()

    def render(frame: Frame, prediction: Prediction) -> Picture:
        if not hasattr(local, "overlay"):
            prepare()
        box = preprocess.box(frame.picture) if isinstance(preprocess, RgbPreprocess) else None
        drawn: Picture = local.overlay.render(frame, prediction, box)
        return drawn

    return render, prepare
