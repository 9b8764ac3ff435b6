"""Settings: defaults, then the YAML file, then the flags."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.options import declared, option
from pipelines.choices import Fit, RtspClientKind, RtspTransport
from pipelines.credentials import Credentials
from pipelines.predict.models.kinds import KINDS, precisions
from pipelines.sources.stream_options import StreamOptions

log = logging.getLogger("watchline.config")

MAX_BATCH = 128
MAX_WORKERS = 64

STREAM = StreamOptions()
"""The defaults of the library."""
BENCHES = ("bench files", "bench streams", "bench concurrency")
MODELS = ("run", "demo", *BENCHES, "serve", "classify")
"""Commands that load a model."""
CAMERAS = ("run", "doctor", "calibrate", "bench streams")
"""Commands that read cameras."""
ALL = ("run", "demo", *BENCHES, "serve", "classify", "calibrate")
"""Commands that log."""
MODEL, PACE, OUT, LIVE, TALK = "model", "which frames, and when", "where results go", "cameras", "messages"


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One stream of a YAML file: its source as text, its credentials, and its own values of options, by name."""

    source: str
    credentials: Credentials | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settings:
    """All options of `watchline run`; other commands have some of them."""

    sources: tuple[str, ...] = ()
    streams: Mapping[str, StreamEntry] = field(default_factory=dict)
    """Of a YAML file, by name."""
    config: str | None = option(None, "YAML with the same names; flags win over it", ("run",), "", metavar="FILE", file=True)

    model: str = option(
        "lite0",
        "lite0 (works offline), a torchvision name, timm:NAME, .onnx, .pt2, .pt, probe",
        (*MODELS, "calibrate"),
        MODEL,
        metavar="NAME|PATH",
        shown="",
        file=True,
    )
    fit: Fit = option(
        "crop",
        "how a frame meets the square input",
        (*MODELS, "calibrate"),
        MODEL,
        per_stream=True,
    )
    labels: str | None = option(None, "line k, from 0, names class k", MODELS, MODEL, metavar="FILE", file=True)
    topk: int = option(5, "labels a frame", MODELS, MODEL, metavar="N", above=0, per_stream=True)
    device: str = option(
        "auto",
        "auto, cpu, cuda, cuda:N",
        MODELS,
        MODEL,
        metavar="D",
        shown="",
        pattern=r"auto|cpu|cuda(:\d+)?",
        allowed="auto, cpu, cuda, cuda:N",
    )
    engine: str = option("auto", "", MODELS, MODEL, choices=("auto", *KINDS), shown="auto: measured")
    precision: str = option("auto", "", MODELS, MODEL, choices=("auto", *precisions()), shown="auto: measured")
    threads: int | None = option(
        None, "of the model on the CPU, in each process", MODELS, MODEL, metavar="N", shown="all cores", above=0, most=1024
    )
    stagers: int | None = option(
        None,
        "threads that make pictures the model's input",
        MODELS,
        MODEL,
        metavar="N",
        shown="a quarter of the cores, at least 1",
        above=0,
        most=64,
    )
    probe_ms_per_batch: float = option(0.0, "for --model probe: time of a batch", MODELS, MODEL, metavar="X", shown="", least=0)
    probe_ms_per_frame: float = option(0.0, "and of each frame in it", MODELS, MODEL, metavar="Y", shown="", least=0)

    jobs: int | None = option(
        None, "files of a folder or glob worked on at once", ("run",), PACE, metavar="N", shown="the cores", above=0
    )
    workers: int | None = option(
        None, "run the model in N processes", ("run",), PACE, metavar="N", shown="in this one", above=0, most=MAX_WORKERS
    )
    max_streams: int | None = option(
        None,
        "size the model for N live streams",
        ("run",),
        PACE,
        metavar="N",
        shown="the given ones",
        above=0,
        most=10_000,
    )
    budget_ms: float = option(50.0, "latency promise", ("run", "bench streams"), PACE, metavar="MS", above=0, per_stream=True)
    max_batch: int = option(
        32, "largest batch", ("run", "bench streams", "bench concurrency"), PACE, metavar="N", above=0, most=MAX_BATCH
    )
    max_wait_ms: float | None = option(None, "wait at most so long for a full batch", ("run",), PACE, metavar="MS", least=0)
    realtime: bool = option(STREAM.realtime, "play files as cameras, by their times", ("run",), PACE)
    loop: bool = option(STREAM.loop, "play files again and again", ("run",), PACE)
    max_frames: int | None = option(
        STREAM.max_frames, "end each stream after N captured frames", ("run",), PACE, metavar="N", above=0, per_stream=True
    )
    stride: int = option(STREAM.stride, "work on every N-th frame", ("run",), PACE, metavar="N", above=0, per_stream=True)
    max_fps: float | None = option(
        STREAM.max_fps, "work on at most F frames a second", ("run",), PACE, metavar="F", above=0, per_stream=True
    )
    deinterlace: bool = option(STREAM.deinterlace, "take the combs out of interlaced pictures", ("run",), PACE, per_stream=True)

    show: bool | None = option(None, "a window; q ends, space pauses a file", ("run",), OUT, toggle=True)
    output: str | None = option(
        None,
        "annotated video, or a folder for several streams",
        ("run", "bench files"),
        OUT,
        metavar="PATH",
        file=True,
        short="-o",
    )
    jsonl: str | None = option(
        None, "one JSON object per captured frame; - is standard output", ("run",), OUT, metavar="PATH", file=True
    )
    report: str | None = option(
        None, "the final report as JSON; - is standard output", ("run",), OUT, metavar="PATH", file=True
    )

    rtsp_client: RtspClientKind = option(
        STREAM.rtsp_client,
        "reader for rtsp://",
        CAMERAS,
        LIVE,
        shown="auto: native where it can",
        per_stream=True,
    )
    rtsp_transport: RtspTransport = option(STREAM.rtsp_transport, "", CAMERAS, LIVE, per_stream=True)
    tls_verify: bool = option(
        STREAM.tls_verify, "check the certificates of rtsps://", CAMERAS, LIVE, shown="on", toggle=True, per_stream=True
    )
    open_timeout: float = option(
        STREAM.open_timeout_s, "seconds to open a source", ("run",), LIVE, metavar="S", above=0, per_stream=True
    )
    read_timeout: float = option(
        STREAM.read_timeout_s, "seconds without a picture", ("run",), LIVE, metavar="S", above=0, per_stream=True
    )
    reconnect: bool = option(
        STREAM.reconnect, "open a lost camera again", ("run",), LIVE, shown="on", toggle=True, per_stream=True
    )
    camera_clock_trusted: bool = option(
        STREAM.camera_clock_trusted,
        "the cameras' clocks are set by one source of time with this machine's: show ages by them",
        ("run",),
        LIVE,
        per_stream=True,
    )

    verbose: bool = option(False, "debug lines and tracebacks", ALL, TALK, short="-v")
    quiet: bool = option(False, "errors only", ALL, TALK, short="-q")


def per_stream() -> list[str]:
    """Names of the options of which a stream may have its own value."""
    return [name for name, found in declared(Settings).items() if found.option.per_stream]
