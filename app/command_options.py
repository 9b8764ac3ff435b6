"""Options of one command alone. Shared ones are in `app/config.py`, those of `serve` in `app/serve/serve_options.py`."""

from __future__ import annotations

from dataclasses import dataclass

from app.config import BENCHES
from app.options import option

FILES, STREAMS, CONCURRENCY, CLASSIFY = ("bench files",), ("bench streams",), ("bench concurrency",), ("classify",)


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of `demo`."""

    folder: str = option("runs/demo", "where the results go", ("demo",), "", metavar="FOLDER", folder=True)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of every `bench`."""

    json: bool = option(False, "print JSON instead of a table", BENCHES, "")


@dataclass(frozen=True, slots=True)
class FilesOptions:
    """Options of `bench files`."""

    frames: int = option(500, "frames at most", FILES, "", metavar="N", above=0)


@dataclass(frozen=True, slots=True)
class StreamsOptions:
    """Options of `bench streams`. source: None is the shipped sample; streams: None searches for the largest number."""

    source: str | None = option(
        None,
        "played many times: a clip (as a camera sends it), synthetic:WxH@FPS or rtsp://",
        STREAMS,
        "",
        metavar="SOURCE",
        shown="the shipped sample",
    )
    streams: int | None = option(None, "measure with N streams, search nothing", STREAMS, "", metavar="N", above=0)
    seconds: float = option(5.0, "of each trial", STREAMS, "", metavar="S", above=0)


@dataclass(frozen=True, slots=True)
class ConcurrencyOptions:
    """Options of `bench concurrency`."""

    seconds: float = option(2.0, "of each measurement", CONCURRENCY, "", metavar="S", above=0)


@dataclass(frozen=True, slots=True)
class ClassifyOptions:
    """Options of `classify`. url: of a service that is asked; None loads the model here."""

    url: str | None = option(None, "ask this service; without it the model is loaded here", CLASSIFY, "", metavar="URL")
    token_env: str | None = option(None, "the variable that holds the service's token", CLASSIFY, "", metavar="NAME")
    json: bool = option(False, "print one JSON object a picture", CLASSIFY, "")


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Options of `calibrate`."""

    force: bool = option(False, "keep it also if it is too unlike fp32", ("calibrate",), "")
