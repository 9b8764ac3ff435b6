"""Standard streams that are closed, full or without a reader: the run goes on, or names in one line the lost output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clips import numbered
from tests.command import PROBE, WATCHLINE, environ, read_lines

FULL, CLOSED, UNREAD = ">/dev/full", ">&-", "| true"


def shell(line: str, place: Path) -> tuple[int, str]:
    """The exit code of the first command of a shell line, and its output; $W is the command."""
    script = f'{line}; exit "${{PIPESTATUS[0]}}"'
    env = environ(W=str(WATCHLINE), PYTHONUNBUFFERED="")
    done = subprocess.run(["bash", "-c", script], cwd=place, env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered(tmp_path_factory.mktemp("clip") / "num.mp4", frames=30)


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2>&1 | true"])
def test_standard_error_that_takes_nothing_ends_no_run(clip: Path, place: Path, where: str) -> None:
    command = ["$W", "run", str(clip), *PROBE, "-v", "--jsonl", "q.jsonl", "--report", "q.json", "-o", "q.mp4", where]
    assert shell(" ".join(command), place)[0] == 0
    assert len(read_lines(place / "q.jsonl")) == 30
    assert json.loads((place / "q.json").read_text())["streams"]["num"]["shown"] == 30
    assert b"watchline" not in (place / "q.mp4").read_bytes()


@pytest.mark.parametrize("flag", ["--jsonl", "--report"])
@pytest.mark.parametrize(
    ("where", "code", "word"), [(FULL, 1, "No space left"), (UNREAD, 1, "Broken pipe"), (CLOSED, 2, "closed")]
)
def test_results_that_cannot_be_written(clip: Path, place: Path, flag: str, where: str, code: int, word: str) -> None:
    ended, said = shell(f"$W run {clip} {' '.join(PROBE)} -q -o q.mp4 {flag} - {where}", place)
    assert ended == code
    (line,) = said.splitlines()
    assert "standard output" in line
    assert word in line
    assert (place / "q.mp4").exists() == (code == 1)


@pytest.mark.parametrize("command", ["doctor", "--help", "--version", "bench --model probe -q CLIP"])
@pytest.mark.parametrize(("where", "word"), [(FULL, "No space left"), (CLOSED, "closed")])
def test_other_commands_say_it_too(clip: Path, place: Path, command: str, where: str, word: str) -> None:
    ended, said = shell(f"$W {command.replace('CLIP', str(clip))} {where}", place)
    assert ended in (1, 2)
    (line,) = said.splitlines()
    assert word in line


def test_what_libraries_print_is_no_result(clip: Path, place: Path) -> None:
    """In Python as torch.hub does, and below it."""
    code = f"""
import os, sys
from app import build
from app.cli import main
made = build.make_model
def noisy(*args, **named):
    print("noise")
    sys.stdout.write("noise\\n")
    os.write(1, b"noise\\n")
    return made(*args, **named)
build.make_model = noisy
sys.argv = ["watchline", "run", {str(clip)!r}, *{PROBE!r}, "--jsonl", "-"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], env=environ(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["frame"] for line in done.stdout.splitlines()] == list(range(30))
    assert done.stderr.count("noise") == 3


def test_the_streams_are_given_back_to_a_process_that_goes_on(clip: Path, place: Path) -> None:
    code = f"""
import os, sys
from app.cli import main
before = sys.stdout, sys.stderr
assert main(["run", {str(clip)!r}, *{PROBE!r}, "-q"]) == 0
assert (sys.stdout, sys.stderr) == before
print("here")
os.write(1, b"there\\n")
"""
    env = environ(PYTHONUNBUFFERED="1")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\nthere\n", "")


def test_a_name_that_the_terminal_cannot_show(clip: Path, place: Path) -> None:
    os.symlink(clip, place / "猫.mp4")
    env = environ(PYTHONIOENCODING="ascii")
    command = [str(WATCHLINE), "run", "猫.mp4", *PROBE, "--report", "-"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["streams"]) == ["猫"]
