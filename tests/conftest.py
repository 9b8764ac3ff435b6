"""A check in every test that it leaves no thread and no process behind, and fixtures that many tests share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.clips import numbered
from tests.command import WATCHLINE, Demo, finished
from tests.display import Environ, start_xvfb, without_display
from tests.sockets import Traffic, traffic
from tests.system import need

GRACE_S = 1.0
"""How long a thread or process that is about to end may still need."""


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if not t.daemon}


def _children() -> set[int]:
    """Ids of this process's children, from the kernel's own list for each thread: a hundred times cheaper than all of /proc."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def _commands(pids: set[int]) -> dict[int, str]:
    """Command line of each process; without those of multiprocessing's helpers, which stay by design."""
    found = {}
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended meanwhile
        if "multiprocessing" not in command:
            found[pid] = command or "a zombie"
    return found


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a thread (not a daemon) or a child process that was not there before."""
    threads, children = _threads(), _children()
    yield
    end = time.monotonic() + GRACE_S
    for thread in _threads() - threads:
        thread.join(max(end - time.monotonic(), 0))
    left = [f"thread {t.name}" for t in _threads() - threads]
    left += [f"process {pid}: {command}" for pid, command in _commands(_children() - children).items()]
    if left:
        pytest.fail(f"left behind: {'; '.join(left)}", pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Models are converted anew in each session: forms that an older version of the code has kept prove nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WATCHLINE_CACHE", str(tmp_path_factory.mktemp("models")))
        yield


T = TypeVar("T")


def _once(name: str, tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], T]) -> T:
    """The result of `make(folder)`, called in one of the parallel test processes; the others wait for it and read it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"once-{name}"
    folder.mkdir(exist_ok=True)
    result, made_in = folder / "result.pickle", folder / "made"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            made_in.mkdir()
            result.write_bytes(pickle.dumps(make(made_in)))
        made: T = pickle.loads(result.read_bytes())
    return made


@pytest.fixture(scope="session")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """The first run of the default model on a machine, with its network traffic. Later runs find the model converted."""
    seen, models = _once("first", tmp_path_factory, _first_run)
    shutil.copytree(models, os.environ["WATCHLINE_CACHE"], dirs_exist_ok=True)
    return seen


def _first_run(folder: Path) -> tuple[Traffic, Path]:
    clip = numbered(folder / "clip.mp4", frames=8)
    command = [str(WATCHLINE), "run", str(clip), "--jsonl", "-"]
    seen = traffic(command, env={**os.environ, "WATCHLINE_CACHE": str(folder / "models"), "HOME": str(folder)})
    return seen, folder / "models"


@pytest.fixture(scope="session")
def demo(first_use: Traffic, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """`watchline demo`, run once in an empty folder."""
    return _once("demo", tmp_path_factory, lambda folder: Demo(folder, finished("demo", cwd=folder)))


@pytest.fixture(scope="session")
def display(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environ]:
    """An environment with a display. XVFB_SCREEN is the file of its frame buffer."""
    need("Xvfb", "xdotool")
    folder = tmp_path_factory.mktemp("xvfb")
    server, name = start_xvfb(folder, "-noreset")
    try:
        yield without_display(DISPLAY=name, XVFB_SCREEN=str(folder / "Xvfb_screen0"))
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
