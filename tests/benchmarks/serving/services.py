"""The compared services, each in a process of its own that is killed at the end."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app import build
from pipelines.predict.models import catalog
from pipelines.predict.models.comparison import Conditions, convert
from pipelines.predict.models.names import DEFAULT
from pipelines.predict.models.store import ModelStore
from pipelines.tasks.classification import ClassificationTask
from tests.benchmarks import environment
from tests.benchmarks.serving.messages import in_json, raw

HERE = Path(__file__).parent
START_S = 120.0
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers. pid: the started process."""

    port: int
    pid: int


Start = Callable[[int], tuple[Sequence[str], Mapping[str, str]]]
"""Command and environment for a port."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its command, and the HTTP message for a picture."""

    start: Start
    message: Callable[[bytes], bytes]


def watchline(*flags: str, headers: Mapping[str, str] | None = None) -> Service:
    """`watchline serve`."""
    command = [sys.executable, "-m", "app.cli", "serve", *flags, "--port"]
    return Service(lambda port: ([*command, str(port)], {}), raw("/v1/classify", headers))


def litserve(precision: str) -> Service:
    """See litserve_app.py."""
    command = [str(environment.interpreter("litserve")), str(HERE / "litserve_app.py"), str(model()), precision]
    return Service(lambda port: ([*command, str(port)], {}), in_json("/predict"))


def mosec(precision: str) -> Service:
    """See mosec_app.py."""
    command = [str(environment.interpreter("mosec")), str(HERE / "mosec_app.py"), "--address", "127.0.0.1", "--port"]
    told = {"WATCHLINE_BENCH_MODEL": str(model()), "WATCHLINE_BENCH_PRECISION": precision}
    return Service(lambda port: ([*command, str(port)], told), raw("/inference"))


def model() -> Path:
    """Watchline's own converted default model: all services run the same one."""
    name = catalog.find(DEFAULT)
    conditions = Conditions(ClassificationTask(), pictures=build.sample_pictures)
    stored = ModelStore(build.cache_folder()).get(name.identity, lambda folder: convert(name, folder, conditions))
    return stored.model


@contextmanager
def running(service: Service, picture: bytes) -> Iterator[Running]:
    """Start the service and wait until it has answered one picture with 200.

    :raises RuntimeError: if it does not within START_S.
    """
    port = _free_port()
    command, told = service.start(port)
    process = subprocess.Popen(
        command,
        env={**os.environ, **told},
        process_group=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=HERE.parents[2],
    )
    try:
        _until_it_answers(process, port, service.message(picture))
        yield Running(port, process.pid)
    finally:
        _end(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _until_it_answers(process: subprocess.Popen[bytes], port: int, message: bytes) -> None:
    ends_s = time.monotonic() + START_S
    while time.monotonic() < ends_s:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            if _ask(port, message) == 200:
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.2)
    raise RuntimeError(f"{process.args!r} did not answer within {START_S:g} s")


def _ask(port: int, message: bytes) -> int:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(message)
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.read()
        return response.status


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a service and all its children."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)
