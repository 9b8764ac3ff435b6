"""The commands, and how their errors reach the person."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2  # noqa: F401 - before PyAV: with both wheels' libxcb in one process, the first window hangs if PyAV's came first
from rich.console import Console

from app.command_options import (
    BenchOptions,
    CalibrateOptions,
    ClassifyOptions,
    ConcurrencyOptions,
    DemoOptions,
    FilesOptions,
    StreamsOptions,
)
from app.config import MODEL, Settings
from app.machine.threads import settle
from app.options import declared, taken
from app.settings import settings
from app.terminal.console import start_logging
from app.terminal.exit_codes import FAILED, WRONG
from app.terminal.signals import Signals
from app.terminal.stdio import StandardOutput
from app.terminal.terminal import Terminal
from pipelines.errors import SinkError, WatchlineError
from pipelines.media import patches
from samples import FOLDER

FONTS = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/TTF", "/usr/share/fonts")
log = logging.getLogger("watchline")


def run(flags: dict[str, Any], results: StandardOutput, signals: Signals) -> int:
    """The exit code of the command. A wrong command is one line; a traceback only with -v."""
    # Set before a library that reads it is imported: nothing phones home.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    settle()
    patches.install()
    # OpenCV points its Qt at a folder of fonts that it does not ship; Qt then complains with every window.
    os.environ["QT_QPA_FONTDIR"] = next((f for f in FONTS if Path(f).is_dir()), "/")
    # Bound to the stream: code that redirects sys.stderr to mute a library does not mute the log.
    console = Console(file=sys.stderr)
    terminal = Terminal(console, results, signals)
    command = flags.pop("command")
    start_logging(console, verbose=flags.get("verbose", False), quiet=flags.get("quiet", False))
    table: Mapping[str, Callable[[dict[str, Any], Terminal], int]] = {
        "run": _run,
        "demo": _demo,
        "doctor": _doctor,
        "bench": _bench,
        "calibrate": _calibrate,
        "serve": _serve,
        "classify": _classify,
    }
    try:
        return table[command](flags, terminal)
    except WatchlineError as error:
        log.error("watchline: %s", error)
        if flags.get("verbose"):
            log.debug("%s", traceback.format_exc())
        return FAILED if isinstance(error, SinkError) else WRONG
    except OSError as error:
        # The system refuses before anything has begun: a name is too long, a folder may not be read.
        log.error("watchline: %s%s", f"{error.filename!r}: " if error.filename else "", error.strerror or error)
        if flags.get("verbose"):
            log.debug("%s", traceback.format_exc())
        return WRONG


def _run(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.run.run import run as run_settings

    return run_settings(settings(flags, flags.pop("config", None)), terminal)


def _demo(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.run.run import run as run_settings
    from pipelines.errors import UsageError

    folder = Path(taken(DemoOptions, flags).folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}; choose another with --folder") from None
    places = {"output": "annotated.mp4", "jsonl": "frames.jsonl", "report": "report.json"}
    paths = {key: str(folder / name) for key, name in places.items()}
    code = run_settings(settings({"sources": (str(FOLDER / "sample.mp4"),), **paths, **flags}, None), terminal)
    if code == 0 and not flags.get("quiet"):
        for line in shots(Path(paths["jsonl"])):
            terminal.results.put(line)
        terminal.results.put(
            f"\nLook at {paths['output']}; every frame's labels are in {paths['jsonl']}, all figures in {paths['report']}."
        )
    return code


def shots(jsonl: Path) -> list[str]:
    """Lines that compare each shot of the sample with the labels of its frames."""
    expected = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    best = {}
    for text in jsonl.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["status"] == "ok" and line["labels"]:
            best[line["frame"]] = line["labels"][0]
    lines = ["", "what the sample shows      what the model said"]
    for shot in expected["shots"]:
        said = [best[k]["name"] for k in range(shot["first_frame"], shot["last_frame"] + 1) if k in best]
        counts = ", ".join(f"{name} {n}" for name, n in Counter(said).most_common(3))
        lines.append(f"  {shot['start_s']:5.1f} s  {shot['name']:<16} {counts} of {len(said)} frames")
    return lines


def _doctor(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.commands.doctor import doctor

    terminal.results.require("doctor")
    return doctor(flags.pop("sources", []), flags, terminal.results)


def _bench(flags: dict[str, Any], terminal: Terminal) -> int:
    which, as_json = flags.pop("bench"), taken(BenchOptions, flags).json
    terminal.results.require("bench")
    sample = str(FOLDER / "sample.mp4")
    if which == "files":
        from app.bench import file_bench

        sources = tuple(flags.pop("sources", ())) or (sample,)
        made = settings({"sources": sources, "max_frames": taken(FilesOptions, flags).frames, **flags}, None)
        return file_bench.bench(made, terminal.results, as_json=as_json)
    if which == "streams":
        from app.bench import stream_bench

        own = taken(StreamsOptions, flags)
        made = settings({"sources": (sample if own.source is None else own.source,), **flags}, None)
        return stream_bench.bench(made, terminal.results, seconds=own.seconds, streams=own.streams, as_json=as_json)
    from app.bench import concurrency_bench

    seconds = taken(ConcurrencyOptions, flags).seconds
    made = settings({"sources": (sample,), **flags}, None)
    return concurrency_bench.bench(made, terminal.results, seconds=seconds, as_json=as_json)


def _serve(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.serve.serve import serve
    from app.serve.serve_options import ServeOptions, default_workers
    from pipelines.predict.models import autoselect

    own = {name: flags.pop(name) for name in declared(ServeOptions) if name in flags}
    options = ServeOptions(**own)
    batches = {"max_batch": options.max_batch, "max_wait_ms": options.max_wait_ms}
    wanted = settings(flags | batches, None, sourceless=True)
    if "workers" not in own:
        options = replace(options, workers=default_workers(autoselect.device(wanted.device)))
    return serve(wanted, options, terminal)


def _classify(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.commands.classify import classify
    from pipelines.errors import UsageError

    terminal.results.require("classify")
    pictures, own = flags.pop("pictures"), taken(ClassifyOptions, flags)
    ours = [d for k, d in declared(Settings).items() if k in flags and d.option.group == MODEL and k != "topk"]
    if own.url is not None and ours:
        named = ", ".join(d.flag for d in ours)
        raise UsageError(f"{named} is for a model that is loaded here; with --url the service's own answers")
    wanted = settings(flags, None, sourceless=True)
    return classify(pictures, wanted, terminal.results, url=own.url, token_env=own.token_env, as_json=own.json)


def _calibrate(flags: dict[str, Any], terminal: Terminal) -> int:
    from app.commands.calibrate import calibrate

    terminal.results.require("calibrate")
    force = taken(CalibrateOptions, flags).force
    return calibrate(settings({"precision": "int8", **flags}, None), terminal, force=force)
