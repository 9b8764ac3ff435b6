"""From settings to parts: model, outputs and numbers of threads. A new sink or consumer of the command is a line here."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from app.config import Settings
from app.streams import StreamPlan
from pipelines.choices import Batching
from pipelines.cores import cores
from pipelines.frame import Frame, Picture, Prediction
from pipelines.lane import Outputs, Render
from pipelines.predict.models.builder import Model, build_predictor
from pipelines.predict.models.model_options import REQUESTS, Load, ModelOptions
from pipelines.predict.predictor import PredictorEvents
from pipelines.render import text
from pipelines.render.overlay import Overlay
from pipelines.render.style import OverlayStyle
from pipelines.sinks.jsonl import JsonLines, Text
from pipelines.sinks.sink import Screen, Sink
from pipelines.sinks.video import VideoFile, VideoOptions
from pipelines.sources.files.file import FileSource
from pipelines.sources.stream_options import StreamOptions
from pipelines.tasks.task import Task
from pipelines.watch import NullWatch
from samples import FOLDER

log = logging.getLogger("watchline.build")

FONTS_S = 4.0
"""Most that finding the labels' fonts may add to the start. One desktop's whole collection takes about 2 s."""
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


# Predictor.


def sample_pictures() -> list[Picture]:
    """Pictures from all over the shipped sample, on which engines and precisions are compared."""
    captures = FileSource(FOLDER / "sample.mp4").frames(threading.Event(), NullWatch())
    chosen = (c.picture for index, c in enumerate(captures) if index % SAMPLE_STEP == SAMPLE_STEP // 2)
    return list(islice(chosen, SAMPLE_PICTURES))


def load_of(streams: Iterable[StreamPlan], settings: Settings) -> Load:
    """The work of a run. An address over HTTP may offer a file or a stream without end: both are expected."""
    streams = list(streams)
    stored = sum(s.stored for s in streams)
    live = len(streams) if settings.realtime else len(streams) - stored
    return Load(
        cameras=max(live, settings.max_streams or 0),
        files=not settings.realtime and (stored > 0 or any(s.spec.kind == "network" for s in streams)),
        stills=all(s.spec.kind == "images" for s in streams),
    )


def model_options(settings: Settings, load: Load) -> ModelOptions:
    """The model's options among the settings."""
    return ModelOptions(
        device=settings.device,
        engine=settings.engine,
        precision=settings.precision,
        fit=settings.fit,
        labels=None if settings.labels is None else Path(settings.labels),
        topk=settings.topk,
        threads=settings.threads,
        stagers=settings.stagers,
        workers=settings.workers,
        budget_s=1e-3 * settings.budget_ms,
        max_batch=settings.max_batch,
        max_wait_s=None if settings.max_wait_ms is None else 1e-3 * settings.max_wait_ms,
        load=load,
        cache=cache_folder(),
        pictures=sample_pictures,
        probe_s=(1e-3 * settings.probe_ms_per_batch, 1e-3 * settings.probe_ms_per_frame),
    )


def make_model(settings: Settings, events: PredictorEvents, load: Load) -> Model:
    """:raises UsageError: if the model, its labels or the device cannot be had."""
    return build_predictor(settings.model, model_options(settings, load), events)


def make_pool(settings: Settings, workers: int, events: PredictorEvents, *, batching: Batching = "dynamic") -> Model:
    """The model of a service, in worker processes.

    :raises UsageError: if the model, its labels or the device cannot be had.
    """
    options = replace(model_options(settings, REQUESTS), workers=workers, batching=batching)
    return build_predictor(settings.model, options, events)


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
