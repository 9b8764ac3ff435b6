"""The documents show things that work: every command in their sh blocks and every Python block runs, and the tables and
examples are the program's.

Commands run in an empty folder with `samples` and the files that the text names. `limited` and `prepare` hold all changes that
are made before a command runs. The pages are README.md, CONTRIBUTING.md, those of docs/ and tests/README.md.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.flags import EXIT_CODES
from samples import FOLDER
from tests.clips import lumas, numbered
from tests.command import Done, environ, finished, read_lines, watchline
from tests.display import start_xvfb
from tests.servers import RtspServer
from tests.system import has, need

ROOT = Path(__file__).parents[1]
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/README.md")
}
TEXT = "\n".join(PAGES.values())
OUTPUTS = PAGES[ROOT / "docs/outputs.md"]
CAMERA = "rtsp://user:password@camera.example"
PASSWORD = "p@ss:word"


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


COMMANDS = list(dict.fromkeys(line for block in blocks("sh") for line in block.splitlines() if line))


def limited(words: list[str]) -> list[str]:
    """The same command with an end, and not longer than a test may take."""
    if words[:2] == ["watchline", "run"]:
        # A camera's first frames may all be dropped on a machine that is too slow for its budget, for half a second.
        live = any(w.startswith("rtsp://") or w in ("cameras.streams", "watchline.yaml") for w in words)
        return [*words, "--max-frames", "50" if live else "12"]
    if words[:3] == ["watchline", "bench", "streams"]:
        return [*words, "--model", "probe", "--streams", "2", "--seconds", "0.5"]
    if words[:3] == ["watchline", "bench", "concurrency"]:
        return [*words, "--model", "probe", "--seconds", "0.3"]
    if words[:2] == ["watchline", "bench"]:
        return [*words, "--frames", "40"]
    return words


@pytest.fixture(scope="module")
def camera(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    clip = numbered(tmp_path_factory.mktemp("camera") / "clip.mp4", frames=100, size=(320, 240))
    with RtspServer({"stream1": clip, "stream2": clip}, user="user", password=PASSWORD) as server:
        yield server


@pytest.fixture(scope="module")
def display(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not has("Xvfb"):
        yield ""
        return
    server, name = start_xvfb(tmp_path_factory.mktemp("xvfb"), "-noreset")
    try:
        yield name
    finally:
        server.terminate()
        server.wait()


def prepare(place: Path, address: str) -> None:
    """The files that the documents' commands name. Outputs go into `out`, which must exist."""
    (place / "samples").symlink_to(FOLDER)
    for folder in ("out", "clips"):
        (place / folder).mkdir()
    for name in ("a", "b"):
        numbered(place / f"clips/{name}.mp4", frames=20)
    (place / "cameras.streams").write_text(f"# both\n{address}/stream1\n{address}/stream2\n")
    (config,) = blocks("yaml", PAGES[ROOT / "docs/sources.md"])
    (place / "watchline.yaml").write_text(config.replace("camera.example", address.rpartition("@")[2]))


@pytest.mark.usefixtures("first_use")
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("watchline ")])
def test_command(place: Path, command: str, camera: RtspServer, display: str) -> None:
    address = camera.url("stream1").removesuffix("/stream1")
    prepare(place, address)
    words = limited([w.replace(CAMERA, address) for w in shlex.split(command)])
    env = environ(CAMERA_PASSWORD=PASSWORD)
    if "--show" in words:
        need("Xvfb")
        env["DISPLAY"] = display
    done = finished(*words[1:], env=env)
    assert done.code == 0, done.err
    assert PASSWORD not in done.out + done.err
    check_outputs(place, words, done)


def check_outputs(place: Path, words: list[str], done: Done) -> None:
    """The outputs of a command exist and have content."""
    for flag, value in itertools.pairwise(words):
        if flag == "--jsonl":
            lines = done.lines if value == "-" else read_lines(place / value)
            assert lines
            assert {line["status"] for line in lines} <= {"ok", "dropped"}
        if flag == "--report":
            assert json.loads((place / value).read_text())["streams"]
        if flag == "-o":
            videos = list((place / value).iterdir()) if (place / value).is_dir() else [place / value]
            assert videos
            assert all(next(lumas(v)) for v in videos)
    if "watchline.yaml" in words:
        assert {line["stream"] for line in read_lines(place / "frames.jsonl")} == {"door", "yard"}


def test_every_command_is_of_a_kind_that_is_tested() -> None:
    """Targets of make are only looked up: .ci/run and test_demo.py run `make test` and the demo."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in COMMANDS:
        kind, *words = shlex.split(command)
        assert kind in ("watchline", "make"), command
        assert kind != "make" or set(words) <= targets, command
    assert {"demo", "test", "check", "venv", "system", "clean"} <= targets


@pytest.mark.usefixtures("first_use")
@pytest.mark.parametrize("code", blocks("python"))
def test_python(place: Path, code: str, camera: RtspServer) -> None:
    prepare(place, camera.url("stream1").removesuffix("/stream1"))
    cache = place / "home/.cache/watchline"  # the library's default
    cache.parent.mkdir(parents=True)
    cache.symlink_to(os.environ["WATCHLINE_CACHE"])
    env = environ(PYTHONPATH=str(ROOT), HOME=str(place / "home"))
    done = subprocess.run([sys.executable, "-c", code], cwd=place, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_exit_codes_are_those_of_help() -> None:
    section = OUTPUTS.split("## Exit codes")[1].split("\n## ")[0]
    said = re.findall(r"^\| (\d+) \| (.*?)(?:,? within 3 s)?(;.*)? \|$", section, re.MULTILINE)
    wanted = [" ".join(k.split(maxsplit=1)) for k in EXIT_CODES.splitlines()[1:]]
    assert [f"{code} {text}{rest}" for code, text, rest in said] == wanted


def test_the_examples_have_the_keys_of_the_program(place: Path) -> None:
    numbered(place / "num.mp4", frames=3)
    done = watchline("run", "num.mp4", "--model", "probe", "--no-show", "--jsonl", "-", "--report", "r.json")
    line, report = (json.loads(block) for block in blocks("json", OUTPUTS))
    real = json.loads((place / "r.json").read_text())
    assert line.keys() == done.lines[0].keys()
    assert line["latency_ms"].keys() == done.lines[0]["latency_ms"].keys()
    assert line["labels"][0].keys() == done.lines[0]["labels"][0].keys()
    assert report.keys() == real.keys()
    assert report["streams"]["door"].keys() == real["streams"]["num"].keys() - {"latency_ms"}
    assert report["streams"]["door"]["dropped"].keys() == real["streams"]["num"]["dropped"].keys()
    for part in ("engine", "device", "machine", "queue_wait_ms"):
        assert report[part].keys() == real[part].keys(), part


def test_modules_that_are_named_are_there() -> None:
    names = set(re.findall(r"python -m\s+([\w.]+)", TEXT))
    assert {"tests.soak", "tests.benchmarks.contenders"} <= names
    assert [name for name in names if find_spec(name) is None] == []


def test_json_is_shown_where_its_keys_are_checked() -> None:
    assert blocks("json") == blocks("json", OUTPUTS)


def test_links_and_pictures_are_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page, text in PAGES.items()
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text)
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert missing == []
    assert "docs/window.png" in PAGES[ROOT / "README.md"]
    assert (ROOT / "docs/frame.jpg").stat().st_size < 150_000


def test_the_first_page_is_short_and_leads_to_all_others() -> None:
    first = PAGES[ROOT / "README.md"]
    assert len(first.splitlines()) <= 200
    assert [p.name for p in (ROOT / "docs").glob("*.md") if f"docs/{p.name}" not in first] == []
