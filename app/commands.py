"""What each command does, and how its errors reach the person."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

import cv2  # noqa: F401 - before PyAV: with both wheels' libxcb in one process, the first window hangs if PyAV's came first
from rich.console import Console

from app.config import settings
from app.console import Enduring, start_logging
from pipelines.errors import WatchlineError
from samples import FOLDER

FONTS = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/TTF", "/usr/share/fonts")
log = logging.getLogger("watchline")
FAILED, WRONG = 1, 2


def run(command: str, flags: dict[str, Any]) -> int:
    """The exit code of the command. A wrong command is one line; a traceback only with -v."""
    # OpenCV points its Qt at a folder of fonts that it does not ship; Qt then complains with every window.
    os.environ["QT_QPA_FONTDIR"] = next((f for f in FONTS if Path(f).is_dir()), "/")
    console = Console(file=cast(TextIO, Enduring(sys.stderr)))
    start_logging(console, verbose=flags.get("verbose", False), quiet=flags.get("quiet", False))
    table: Mapping[str, Callable[[dict[str, Any], Console], int]] = {
        "run": _run, "demo": _demo, "doctor": _doctor, "bench": _bench,
    }  # fmt: skip
    try:
        code = table[command](flags, console)
    except (WatchlineError, OSError) as error:
        code = WRONG if isinstance(error, WatchlineError) else FAILED
        log.error("watchline: %s", error if code == WRONG else _in_words(error))
        if flags.get("verbose"):
            log.debug("%s", traceback.format_exc())
    return _printed(code)


def _printed(code: int) -> int:
    """See that all of standard output is out, once: Python would try again at its end, and complain in its own way."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if code == 0:
            log.error("watchline: %s", _in_words(error))
            code = FAILED
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _in_words(error: BaseException) -> str:
    """What a system call was refused. Only printing ends here without a file's name."""
    where = getattr(error, "filename", None) or "standard output"
    return f"{where}: {getattr(error, 'strerror', None) or error}"


def _run(flags: dict[str, Any], console: Console) -> int:
    from app.run import run as run_settings

    return run_settings(settings(flags, flags.pop("config")), console)


def _demo(flags: dict[str, Any], console: Console) -> int:
    from app.run import run as run_settings
    from pipelines.errors import UsageError

    folder = Path(flags.pop("folder"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {str(folder)!r}: {error.strerror}; choose another with --folder") from None
    places = {"output": "annotated.mp4", "jsonl": "frames.jsonl", "report": "report.json"}
    paths = {key: str(folder / name) for key, name in places.items()}
    code = run_settings(settings({"sources": (str(FOLDER / "sample.mp4"),), **paths, **flags}, None), console)
    if code == 0 and not flags.get("quiet"):
        for line in shots(Path(paths["jsonl"])):
            print(line)
        print(f"\nLook at {paths['output']}; every frame's labels are in {paths['jsonl']}, all figures in {paths['report']}.")
    return code


def shots(jsonl: Path) -> list[str]:
    """For each shot of the sample: what it shows, and in how many frames the model said so."""
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


def _doctor(flags: dict[str, Any], console: Console) -> int:
    from app.doctor import doctor

    return doctor(flags.pop("sources", []), flags)


def _bench(flags: dict[str, Any], console: Console) -> int:
    from app.bench import bench

    sources = tuple(flags.pop("sources")) or (str(FOLDER / "sample.mp4"),)
    frames, as_json = flags.pop("frames"), flags.pop("json")
    return bench(settings({"sources": sources, "max_frames": frames, **flags}, None), console, as_json=as_json)
