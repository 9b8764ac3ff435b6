"""`watchline classify`: labels for people and scripts, here or by a service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import environ, watchline
from tests.serve.serving import grey, served

pytestmark = pytest.mark.timeout(60)
PHOTOS = Path(__file__).parents[2] / "samples/photos"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as server:
        yield server.url


def pictures(place: Path, count: int) -> list[str]:
    for k in range(count):
        (place / f"{k:03}.jpg").write_bytes(grey(k))
    return [f"{k:03}.jpg" for k in range(count)]


@pytest.mark.parametrize("where", ["here", "there"])
def test_one_line_a_picture_in_their_order(place: Path, url: str, where: str) -> None:
    names = pictures(place, 70)
    how = ("--url", url) if where == "there" else ("--model", "probe")
    done = watchline("classify", *names, *how, "--topk", "1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [f"{name}: {k} 1.000" for k, name in enumerate(names)]
    done = watchline("classify", *names[:2], *how, "--json")
    assert done.lines[1]["file"] == "001.jpg"
    assert done.lines[1]["labels"][0] == {"id": 1, "name": "1", "p": 1.0}
    assert len(done.lines[1]["labels"]) == 5


@pytest.mark.parametrize("where", ["here", "there"])
def test_bad_ones_are_said_and_the_others_done(place: Path, url: str, where: str) -> None:
    how = ("--url", url) if where == "there" else ("--model", "probe")
    (good,) = pictures(place, 1)
    (place / "text.jpg").write_text("text")
    done = watchline("classify", "none.jpg", good, "text.jpg", *how)
    assert done.code == 1
    assert done.out.startswith("000.jpg: 0 1.000")
    assert done.err.splitlines() == [
        "none.jpg: No such file or directory",
        "text.jpg: no picture of a known kind: JPEG, PNG, WebP or GIF",
    ]
    assert watchline("classify", "none.jpg", *how).code == 2


def test_a_service_that_is_not_there(place: Path) -> None:
    names = pictures(place, 2)
    done = watchline("classify", *names, "--url", "http://127.0.0.1:9")
    assert done.code == 2
    assert done.err.splitlines() == [f"{name}: http://127.0.0.1:9: Connection refused" for name in names]
    done = watchline("classify", *names, "--url", "nonsense://")
    assert (done.code, len(done.err.splitlines())) == (2, 1)


def test_a_token(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = pictures(place, 1)
    monkeypatch.setenv("SERVICE_TOKEN", "s3cret")
    with served(token=b"s3cret") as server:
        assert watchline("classify", name, "--url", server.url, "--token-env", "SERVICE_TOKEN").code == 0
        done = watchline("classify", name, "--url", server.url)
        assert done.code == 2
        assert "this service needs its token" in done.err
    done = watchline("classify", name, "--model", "probe", "--token-env", "SERVICE_TOKEN")
    assert (done.code, "is for --url" in done.err) == (2, True)


def test_a_service_has_a_model_of_its_own(place: Path) -> None:
    done = watchline("classify", "x.jpg", "--url", "http://127.0.0.1:1", "--model", "probe", "--precision", "fp32")
    assert (done.code, "--model, --precision is for a model that is loaded here" in done.err) == (2, True)


def test_standard_input(place: Path) -> None:
    command = [sys.executable, "-m", "app.cli", "classify", "-", "--model", "probe", "--topk", "1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, input=grey(9), capture_output=True, env=environ(PYTHONPATH=str(root)), check=True)
    assert done.stdout == b"-: 9 1.000\n"
    assert not os.listdir(place)


@pytest.mark.usefixtures("first_use")
def test_the_default_model_says_what_a_run_says(place: Path) -> None:
    shutil.copytree(PHOTOS, place / "photos")
    done = watchline("classify", "photos/squirrel_cls.jpg", "photos/orange.jpg", "--json")
    run = watchline("run", "photos", "--jsonl", "-", "--no-show")
    said = {line["file"]: line["labels"] for line in run.lines}
    assert done.lines[0]["labels"][0]["name"] == "fox squirrel"
    for line in done.lines:
        wanted = said[Path(line["file"]).name]
        assert [k["name"] for k in line["labels"]] == [k["name"] for k in wanted]
        assert all(abs(a["p"] - b["p"]) < 0.001 for a, b in zip(line["labels"], wanted, strict=True))
