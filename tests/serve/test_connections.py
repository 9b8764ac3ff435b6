"""Connections that send no request, or send it slowly; and more connections than there are file descriptors."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from app.http import server
from app.serve.serve import Server
from tests.serve.serving import Caller, get, grey, post, served

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(server, "HEADERS_S", 0.3)
    with served() as made:
        yield made


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 10)


@pytest.mark.parametrize("said", [b"", b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-"])
def test_who_does_not_ask_is_cut_off(service: Server, said: bytes) -> None:
    with connect(service.url) as idle:
        idle.sendall(said)
        assert idle.recv(10) == b""


def test_trickling_headers_do_not_help(service: Server) -> None:
    with connect(service.url) as slow:
        slow.settimeout(0.1)
        for _ in range(50):
            try:
                slow.sendall(b"G")
                if slow.recv(10) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("it may go on for ever")


def test_a_kept_connection_waits_longer_for_its_next_request(service: Server) -> None:
    with Caller(service.url) as caller:
        assert caller.post(grey(1)).label == "1"
        caller.connection.sock.settimeout(0.6)
        with pytest.raises(TimeoutError):
            caller.connection.sock.recv(1)
        caller.connection.sock.settimeout(10)
        assert caller.post(grey(2)).label == "2"


def test_too_many_connections(service: Server) -> None:
    service.service.most_connections = 3
    with Caller(service.url) as one, Caller(service.url) as two:
        assert one.post(grey(1)).label == "1"
        assert two.post(grey(1)).label == "1"
        with connect(service.url), connect(service.url):
            assert get(service.url, "/live").status == 200
            said = post(service.url, grey(2))
            assert (said.status, said.json["error"], said.headers["connection"]) == (503, "too_many_connections", "close")
            assert "retry-after" in said.headers
        assert one.post(grey(3)).status in (200, 503)
    service.service.most_connections = 100
    assert post(service.url, grey(4)).label == "4"
