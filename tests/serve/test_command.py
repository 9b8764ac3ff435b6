"""`watchline serve` as a process: its signals, its end, no leftovers, and no connections to other hosts."""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import environ
from tests.serve.process import COMMAND, command_of, serving
from tests.serve.serving import get, grey, post
from tests.sockets import traffic

pytestmark = pytest.mark.timeout(120)
PROBE = ("--model", "probe", "--workers", "1")
SLOW = (*PROBE, "--probe-ms-per-batch", "1500")
STUCK = (*PROBE, "--probe-ms-per-batch", "30000", "--request-timeout", "60")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_answers_what_is_in_flight_and_takes_nothing_new(number: signal.Signals, code: int) -> None:
    with serving(*SLOW, "--max-batch", "1") as process:
        answers: list[str] = []
        threads = [threading.Thread(target=lambda k=k: answers.append(post(process.url, grey(k)).label)) for k in (1, 2)]
        threads[0].start()
        until(lambda: metric(process.url, "watchline_held_bytes") > 0 and metric(process.url, "watchline_queue_depth") == 0)
        threads[1].start()  # while the first one is computed: from now on the second one waits
        until(lambda: metric(process.url, "watchline_queue_depth") == 1)
        process.popen.send_signal(number)
        process.until("stopping")
        assert (get(process.url, "/ready").status, get(process.url, "/ready").json["state"]) == (503, "stopping")
        assert get(process.url, "/live").status == 200
        said = post(process.url, grey(3))
        assert (said.status, said.json["error"]) == (503, "stopping")
        for thread in threads:
            thread.join()
        assert sorted(answers) == ["1", "2"]
        process.popen.wait(5)
        assert process.popen.returncode == code


def until(true: Callable[[], bool], limit_s: float = 10.0) -> None:
    """Wait until a condition that another process fulfils is true."""
    end_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end_s, "it did not come about"
        threading.Event().wait(0.01)


def until_gone(workers: list[int]) -> None:
    until(lambda: not any(command_of(pid) for pid in workers), 5)


def metric(url: str, name: str) -> float:
    text = get(url, "/metrics").body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


def status_of(url: str) -> int:
    """The status of the answer to a picture; 0 if the connection was cut."""
    try:
        return post(url, grey(1)).status
    except (OSError, http.client.HTTPException):
        return 0


def test_what_does_not_end_in_time_is_cut_off() -> None:
    with serving(*STUCK) as process:
        status: list[int] = []
        thread = threading.Thread(target=lambda: status.append(status_of(process.url)))
        thread.start()
        until(lambda: metric(process.url, "watchline_held_bytes") > 0)
        workers = process.children()
        assert process.end(signal.SIGTERM) < 5.0
        thread.join()
        assert status[0] in (0, 503)
        assert process.popen.returncode == 143
        until_gone(workers)


def test_a_stop_while_the_model_is_loaded() -> None:
    with serving(*PROBE, wait=False) as process:
        process.until("listening on")
        assert process.end(signal.SIGTERM) < 5.0
        assert process.popen.returncode == 143


def test_a_signal_may_come_to_any_thread() -> None:
    """The kernel chooses the thread; Python runs handlers in the main thread only, which must check now and then."""
    with serving(*PROBE) as process:
        for k in range(50):  # by then the main thread has nothing left to do but to wait
            assert post(process.url, grey(k)).label == str(k)
        threads = sorted(int(k.name) for k in Path(f"/proc/{process.popen.pid}/task").iterdir())
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.tgkill(process.popen.pid, threads[1], int(signal.SIGTERM)) == 0
        process.popen.wait(5)
        assert process.popen.returncode == 143


def test_a_second_signal_ends_at_once() -> None:
    with serving(*STUCK) as process:
        thread = threading.Thread(target=status_of, args=(process.url,))
        thread.start()
        until(lambda: metric(process.url, "watchline_held_bytes") > 0)
        process.popen.send_signal(signal.SIGINT)
        process.until("stopping")
        assert process.end(signal.SIGINT) < 1.0
        assert process.popen.returncode == 130
        thread.join()


def test_a_dead_service_leaves_nothing_behind() -> None:
    shared = set(Path("/dev/shm").iterdir())
    with serving(*PROBE, "--workers", "2") as process:
        workers = process.children()
        assert len(workers) == 2
        post(process.url, grey(1))
        process.popen.kill()
        process.popen.wait(5)
        until_gone(workers)
        assert set(Path("/dev/shm").iterdir()) <= shared
        with pytest.raises(ConnectionRefusedError):
            get(process.url, "/live")


@pytest.mark.usefixtures("first_use")
def test_the_default_model_is_ready_with_two_workers() -> None:
    with serving("--workers", "2", wait=False) as process:
        assert process.until_ready() < 25
        said = post(process.url, (Path(__file__).parents[2] / "samples/photos/squirrel_cls.jpg").read_bytes())
        assert said.label == "fox squirrel"


def test_it_talks_to_nobody_whatever_the_environment_asks_for() -> None:
    """FastAPI would send requests it sees to the collector in these variables."""
    env = environ(
        FASTAPI_OTEL_AUTO_CONFIGURE="true",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:4318",
        OTEL_TRACES_EXPORTER="otlp",
        OTEL_METRICS_EXPORTER="otlp",
    )
    code = """
import subprocess, sys, signal, urllib.request
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True)
for line in process.stderr:
    if "ready after" in line:
        break
process.send_signal(signal.SIGTERM)
sys.stderr.write(process.stderr.read())
sys.exit(process.wait() != 143)
"""
    try:
        seen = traffic([sys.executable, "-c", code, *COMMAND, *PROBE], env=env)
    except OSError as error:
        if os.environ.get("WATCHLINE_REQUIRE_ALL") == "1":
            raise
        pytest.skip(f"this system does not let a process be watched: {error}")
    assert seen.code == 0, seen.err
    assert seen.addresses == set()


def test_it_says_who_may_use_it() -> None:
    with serving(*PROBE, "--host", "0.0.0.0", "--no-auth") as process:
        assert len([k for k in process.lines if "--no-auth: all clients that reach http://0.0.0.0:" in k]) == 1
    secret = "s3cret-token"
    with serving(*PROBE, "-v", "--token-env", "SERVICE_TOKEN", env={"SERVICE_TOKEN": secret}) as process:
        url = process.url
        assert get(url, "/v1/model", Authorization=f"Bearer {secret}").status == 200
        assert get(url, "/v1/model", Authorization="Bearer wrong").status == 401
        process.end(signal.SIGTERM)
        assert not any(secret in line for line in process.lines)


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = """
import sys
from app.cli import main
sys.argv[1:] = ["serve", "--help"]
try:
    main()
except SystemExit:
    print(*sorted({"fastapi", "uvicorn", "prometheus_client", "numpy", "av"} & sys.modules.keys()), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ())
    assert "--queue-depth" in done.stdout
    assert done.stderr.split() == []
