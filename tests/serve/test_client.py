"""The client class: the predictor's submit(), over the network."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from app.serve import uploads
from app.serve.client import Client, Unreachable
from pipelines.errors import Dropped, EngineError, Refused, SourceError, UsageError
from pipelines.frame import Frame, Picture, StreamInfo, Trace
from pipelines.sources.files.encoded import EncodedPictures
from tests.fakes import labels_of
from tests.predict.fakes import Held, frame
from tests.serve.serving import grey, held, served

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as server:
        yield server.url


def test_a_frame_is_answered_as_the_predictor_would(url: str) -> None:
    with Client(url) as client:
        futures = [client.submit(frame("a", k, k, time.monotonic())) for k in range(0, 250, 5)]
        predictions = [future.result(20) for future in futures]
    assert [labels_of(p)[0].id for p in predictions] == list(range(0, 250, 5))
    assert all(len(labels_of(p)) == 5 and p.batch_size >= 1 for p in predictions)


def test_planes_arrive_as_they_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client also sends odd sizes, rotation, matrix and range."""
    chance = np.random.default_rng(0)
    y, c = chance.integers(0, 256, (31, 43), np.uint8), chance.integers(0, 256, (2, 16, 22), np.uint8)
    sent = Picture(y, c[0], c[1], "bt709", True, 90, True, Fraction(4, 3))
    seen: list[Picture] = []
    original = uploads._planes

    def spied(headers: Mapping[str, str], body: bytes) -> uploads.Upload:
        made = original(headers, body)
        seen.append(made.decode(EncodedPictures()))
        return made

    monkeypatch.setattr(uploads, "_planes", spied)
    with Client(url) as client:
        client.submit(Frame("a", 0, 0, sent, None, StreamInfo(), Trace(0.0, 0.0))).result(20)
    (got,) = seen
    for one, other in ((got.y, sent.y), (got.u, sent.u), (got.v, sent.v)):
        np.testing.assert_array_equal(one, other)
    for field in ("matrix", "full_range", "rotation", "mirrored", "sample_aspect"):
        assert getattr(got, field) == getattr(sent, field), field


def test_encoded_pictures_and_topk(url: str) -> None:
    with Client(url) as client:
        assert labels_of(client.submit_encoded(grey(123), topk=2).result(20))[0].name == "123"
        assert len(labels_of(client.submit_encoded(grey(123), topk=2).result(20))) == 2


def test_errors_are_those_of_the_predictor(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(SourceError, match="no picture of a known kind"):
            client.submit_encoded(b"text").result(20)
        with pytest.raises(UsageError, match="topk"):
            client.submit_encoded(grey(1), topk=99).result(20)
        with pytest.raises(Dropped, match="deadline"):
            client.submit_encoded(grey(1), time.monotonic() - 1).result(20)


def test_a_service_that_is_busy_or_late_says_so() -> None:
    gate = Held()
    with served(make=held(gate), max_batch=1, queue_depth=1, request_timeout=20) as server, Client(server.url) as client:
        first = client.submit_encoded(grey(1))
        gate.until_waiting()
        with pytest.raises(Dropped, match="deadline"):
            client.submit_encoded(grey(2), time.monotonic() + 0.1).result(20)
        futures = [client.submit_encoded(grey(k)) for k in range(4)]
        refusals = []
        for future in futures:
            try:
                future.result(1 if future is futures[0] else 20)
            except Refused as refused:
                refusals.append((refused.why, refused.retry_after_s))
            except TimeoutError:
                gate.open()  # the one that waits
        assert refusals.count(("full", 1.0)) >= 1
        gate.open()
        assert labels_of(first.result(20))[0].id == 1


def test_an_error_of_the_model() -> None:
    gate = Held()
    gate.open()
    with served(make=held(gate)) as server, Client(server.url) as client:
        server.service.handler._result = None  # type: ignore[method-assign,assignment]
        with pytest.raises(EngineError, match="could not answer"):
            client.submit_encoded(grey(2)).result(20)


def test_a_token() -> None:
    with served(token=b"s3cret") as server:
        with Client(server.url, token="s3cret") as client:
            assert labels_of(client.submit_encoded(grey(8)).result(20))[0].id == 8
        for token in ("wrong", None):
            with Client(server.url, token=token) as client, pytest.raises(UsageError, match="token"):
                client.submit_encoded(grey(8)).result(20)


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Unreachable, match="refused"):
        client.submit_encoded(grey(1)).result(20)


@pytest.mark.parametrize(
    ("status", "body"), [("200 OK", b"hello"), ("200 OK", b'{"a": 1}'), ("200 OK", b"[]"), ("404 Not Found", b'["no"]')]
)
def test_somebody_else_is_there(status: str, body: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                connection.sendall(head.encode() + body)

        thread = threading.Thread(target=answer)
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client, pytest.raises(Unreachable):
            client.submit_encoded(b"x").result(20)
        thread.join()


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    with served() as server, Client(server.url, connections=1) as client:
        assert labels_of(client.submit_encoded(grey(1)).result(20))[0].id == 1
        (connection,) = client._open
        connection.sock.shutdown(socket.SHUT_WR)  # the service closes its end
        assert labels_of(client.submit_encoded(grey(2)).result(20))[0].id == 2


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://user:pw@host", "http://host:x", "http://host:"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a service") as failed:
        Client(url)
    assert "pw" not in str(failed.value)


def test_the_client_needs_nothing_heavy() -> None:
    code = "import sys, app.serve.client; print(*sorted({'torch', 'fastapi', 'uvicorn', 'openvino'} & sys.modules.keys()))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
