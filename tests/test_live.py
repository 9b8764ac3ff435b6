"""Cameras end to end: a real RTSP server, the real command, its messages and its counts when cameras die."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.clips import level, numbered
from tests.command import PROBE, running, values, watchline
from tests.servers import Play, RtspServer
from tests.sources.play import READERS
from tests.system import need

pytestmark = pytest.mark.timeout(90)
Line = dict[str, Any]
PASSWORD = "p@s#s:w/%^!"
CLIENTS = pytest.mark.parametrize("client", ["native", "ffmpeg"])


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbered pictures with a key picture every second."""
    return numbered(tmp_path_factory.mktemp("live") / "num.mp4", frames=100, gop=25)


@pytest.fixture
def camera(clip: Path) -> Iterator[RtspServer]:
    need("gst-rtsp-server")
    with RtspServer({"cam": Play(clip, sound=False)}) as server:
        yield server


def _lines(process: subprocess.Popen[str]) -> Iterator[Line]:
    assert process.stdout is not None
    for text in process.stdout:
        yield json.loads(text)


def _until(lines: Iterator[Line], wanted: Callable[[Line], bool]) -> Line:
    return next(line for line in lines if wanted(line))


def _shown(line: Line) -> bool:
    return bool(line["status"] == "ok")


def _adds_up(stream: Mapping[str, Any]) -> bool:
    return bool(stream["captured"] == stream["shown"] + stream["failed"] + sum(stream["dropped"].values()))


@pytest.mark.parametrize("reader", READERS)
def test_every_captured_frame_of_a_camera_is_in_the_lines_with_its_own_number(camera: RtspServer, reader: str) -> None:
    client, transport = reader.split()
    flags = ("--rtsp-client", client, "--rtsp-transport", transport, "--max-frames", "60", "--jsonl", "-")
    done = watchline("run", camera.url("cam"), *PROBE, *flags)
    assert done.code == 0
    assert [line["frame"] for line in done.lines] == list(range(60))
    shown = [line for line in done.lines if _shown(line)]
    assert len(shown) >= 20
    levels = [line["labels"][0]["id"] for line in shown]
    assert set(levels) <= {level(n) for n in range(100)}
    pairs = [(a, b) for a, b in pairwise(shown) if b["frame"] == a["frame"] + 1]
    steps = {(b["labels"][0]["id"] - a["labels"][0]["id"]) // 2 for a, b in pairs}
    assert steps <= {1, -99}, "a picture was repeated or left out between two frames of the stream"


@CLIENTS
def test_a_camera_that_dies_comes_back_as_a_new_session_and_the_ledger_adds_up(
    camera: RtspServer, tmp_path: Path, client: str
) -> None:
    report = tmp_path / "report.json"
    flags = ("--jsonl", "-", "--report", str(report), "--read-timeout", "2", "--rtsp-client", client)
    with running("run", camera.url("cam"), *PROBE, *flags) as process:
        lines = _lines(process)
        _until(lines, _shown)
        camera.kill()
        camera.restart()
        back = _until(lines, lambda line: line["session"] == 1 and _shown(line))
        process.send_signal(signal.SIGTERM)
        rest = list(lines)
        assert process.wait(5) == 143
    assert [line["frame"] for line in rest] == list(range(back["frame"] + 1, back["frame"] + 1 + len(rest)))
    stream = json.loads(report.read_text())["streams"]["127.0.0.1-cam"]
    assert _adds_up(stream)
    assert stream["reconnects"] == 1
    assert len(stream["outages"]) == 1
    assert 0 < stream["outages"][0]["seconds"] < 15


@CLIENTS
def test_a_frozen_camera_is_an_outage_and_gives_new_pictures_afterwards(camera: RtspServer, client: str) -> None:
    flags = ("--jsonl", "-", "--read-timeout", "1", "--rtsp-client", client)
    with running("run", camera.url("cam"), *PROBE, *flags) as process:
        assert process.stderr is not None
        lines = _lines(process)
        before = _until(lines, _shown)
        camera.freeze()
        said = next(text for text in process.stderr if "trying again" in text)
        camera.thaw()
        after = _until(lines, lambda line: line["session"] >= 1 and _shown(line))
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
    assert "1 s" in said
    assert after["frame"] > before["frame"]


def test_a_dead_camera_beside_a_file_leaves_the_file_whole(clip: Path) -> None:
    done = watchline("run", str(clip), "rtsp://127.0.0.1:9/dead", *PROBE, "--no-reconnect", "--jsonl", "-")
    assert done.code == 1
    assert values(done.lines, "num") == [(n, str(level(n))) for n in range(100)]
    assert "rtsp://127.0.0.1:9/dead" in done.err


def test_a_model_slower_than_the_camera_drops_frames_and_never_grows_old() -> None:
    slow = ("--model", "probe", "--no-show", "--probe-ms-per-batch", "200")
    done = watchline("run", "synthetic:64x64@25", *slow, "--max-frames", "150", "--jsonl", "-")
    assert done.code == 0
    assert [line["frame"] for line in done.lines] == list(range(150))
    ages = [line["latency_ms"]["total"] for line in done.lines if _shown(line)]
    assert len(ages) >= 4
    assert max(ages) < 500


@pytest.mark.parametrize(("auth", "client"), [("digest", "native"), ("basic", "native"), ("digest", "ffmpeg")])
def test_a_password_that_is_given_apart_arrives_as_it_is(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auth: Any, client: str
) -> None:
    need("gst-rtsp-server")
    config = tmp_path / "config.yaml"
    args = ("run", "--config", str(config), *PROBE, "--rtsp-client", client, "--max-frames", "5", "-v")
    with RtspServer({"cam": Play(clip, sound=False)}, user="viewer", password=PASSWORD, auth=auth) as server:
        source = server.url("cam", credentials=False)
        config.write_text(f"streams: {{door: {{source: '{source}', user: viewer, password: '${{DOOR}}'}}}}\n")
        monkeypatch.setenv("DOOR", PASSWORD)
        done = watchline(*args)
        monkeypatch.setenv("DOOR", "n0tit")
        wrong = watchline(*args)
    assert done.code == 0, done.err
    assert (wrong.code, "401" in wrong.err) == (2, True)
    assert PASSWORD not in done.err + done.out
