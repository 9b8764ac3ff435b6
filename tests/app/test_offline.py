"""Nothing phones home: the kernel is asked to open no socket but to the sources (how that is seen: tests/sockets.py)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.clips import numbered
from tests.command import PROBE, WATCHLINE, environ
from tests.servers import RtspServer
from tests.servers.peers import HttpFiles
from tests.sockets import Traffic, traffic
from tests.system import need


@pytest.fixture(scope="module", autouse=True)
def _can_watch() -> None:
    try:
        traffic(["true"])
    except OSError as error:
        reason = f"this system does not let a process be watched: {error}"
        if os.environ.get("WATCHLINE_REQUIRE_ALL") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def watched(*args: str, cwd: Path) -> Traffic:
    """The system calls of a command, and its output."""
    seen = traffic([str(WATCHLINE), *args], cwd=cwd, env=environ())
    assert seen.code == 0, seen.err
    return seen


def test_the_watch_sees_what_there_is() -> None:
    """Every way to name an address, from a thread of a child process."""
    code = """
import socket, subprocess, sys, threading
def talk():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            one.connect_ex(("127.0.0.1", 9))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("::1", 10))
        one.sendmsg([b"x"], [], 0, ("::1", 11))
if sys.argv[2:]:
    threading.Thread(target=talk).start()
else:
    subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[1], "talk"], check=True)
"""
    seen = traffic([sys.executable, "-c", code, code])
    assert seen.code == 0, seen.err
    assert seen.sockets == 3
    assert seen.addresses == {("127.0.0.1", 9), ("::1", 10), ("::1", 11)}


def test_the_first_use_of_the_default_model(first_use: Traffic) -> None:
    """torch, timm, torchvision and OpenVINO at work, from weights to labels, with nothing in the cache."""
    assert first_use.code == 0, first_use.err
    assert len(first_use.out.splitlines()) == 8
    assert (first_use.sockets, first_use.addresses) == (0, set())


@pytest.mark.usefixtures("first_use")
def test_a_file_with_all_outputs(place: Path) -> None:
    numbered(place / "num.mp4", frames=8, sound=True)
    outputs = ("-o", "out.mp4", "--jsonl", "out.jsonl", "--report", "r.json")
    seen = watched("run", "num.mp4", *outputs, cwd=place)
    assert (seen.sockets, seen.addresses) == (0, set())
    assert (place / "out.mp4").exists()


def test_torch(place: Path) -> None:
    numbered(place / "num.mp4", frames=4)
    seen = watched("run", "num.mp4", "--engine", "torch", "--no-show", "--max-batch", "2", cwd=place)
    assert (seen.sockets, seen.addresses) == (0, set())


def test_doctor_and_bench(place: Path) -> None:
    numbered(place / "num.mp4", frames=8)
    for args in (("doctor", "num.mp4"), ("bench", "num.mp4", "--model", "probe")):
        seen = watched(*args, cwd=place)
        assert (seen.sockets, seen.addresses) == (0, set()), args


def test_http_goes_to_its_server_only(place: Path) -> None:
    numbered(place / "num.mp4", frames=8)
    with HttpFiles(place) as files:
        url = files.url("num.mp4")
        seen = watched("run", url, *PROBE, cwd=place)
    assert {address for address, _ in seen.addresses} == {"127.0.0.1"}
    assert {port for _, port in seen.addresses} == {int(url.split(":")[2].split("/")[0])}


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_rtsp_goes_to_its_server_only(place: Path, transport: str) -> None:
    need("gst-rtsp-server")
    with RtspServer({"cam": numbered(place / "num.mp4", frames=50)}) as server:
        source = (server.url("cam"), "--rtsp-transport", transport, "--max-frames", "10")
        seen = watched("run", *source, *PROBE, cwd=place)
    assert ("127.0.0.1", server.port) in seen.addresses
    assert {address for address, _ in seen.addresses} == {"127.0.0.1"}
    if transport == "tcp":
        assert seen.addresses == {("127.0.0.1", server.port)}
