"""Tokens and addresses of the service, and options that the command refuses."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from app.serve.serve_options import ServeOptions, check, is_loopback, listen, token
from pipelines.errors import UsageError
from tests.command import watchline
from tests.serve.serving import JPEG, Caller, get, grey, post, served

pytestmark = pytest.mark.timeout(60)
TOKEN = "c0rrect-horse"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(token=TOKEN.encode()) as server:
        yield server.url


WRONG = [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer ä"]


@pytest.mark.parametrize("given", WRONG)
def test_without_the_token_nothing_is_answered(url: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    for path in ("/v1/model", "/v1/health-report", "/metrics", "/nowhere"):
        said = get(url, path, **headers)
        assert (said.status, said.json["error"], said.headers["www-authenticate"]) == (401, "unauthorized", "Bearer")
    assert post(url, grey(1), JPEG | headers).status == 401
    assert TOKEN.encode() not in post(url, grey(1), JPEG | headers).body


def test_with_the_token_all_is_answered(url: str) -> None:
    for kind in ("Bearer", "bearer"):
        assert post(url, grey(7), JPEG | {"Authorization": f"{kind} {TOKEN}"}).label == "7"
    assert get(url, "/metrics", Authorization=f"Bearer {TOKEN}").status == 200


def test_probes_and_documentation_need_none(url: str) -> None:
    for path in ("/live", "/ready", "/docs", "/openapi.json"):
        assert get(url, path).status == 200


def test_a_body_is_not_read_for_who_has_no_token(url: str) -> None:
    with Caller(url) as caller:
        assert caller.post(bytes(30 << 20)).status == 401


def test_the_token_comes_from_the_environment() -> None:
    options = ServeOptions(token_env="SECRET")
    assert token(options, {"SECRET": " abc\n"}) == b"abc"
    for environ in ({}, {"SECRET": ""}, {"SECRET": "a b"}, {"SECRET": "ä"}, {"SECRET": "a\nb"}):
        with pytest.raises(UsageError, match="--token-env SECRET") as failed:
            token(options, environ)
        assert "a b" not in str(failed.value)


def test_only_this_machine_without_a_token() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        assert is_loopback(host)
        assert token(ServeOptions(host=host), {}) is None
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(UsageError, match="--token-env NAME, or say --no-auth"):
            token(ServeOptions(host=host), {})
        assert token(ServeOptions(host=host, no_auth=True), {}) is None
        assert token(ServeOptions(host=host, token_env="T"), {"T": "x"}) == b"x"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--workers", "0"), "--workers must be from 1 to 64, got 0"),
        (("--port", "70000"), "--port must be from 0 to 65535"),
        (("--max-batch", "129"), "--max-batch must be at most 128, got 129"),
        (("--queue-depth", "0"), "--queue-depth must be from 1"),
        (("--max-wait-ms", "-1"), "--max-wait-ms must be 0 or more"),
        (("--request-timeout", "0"), "--request-timeout must be from"),
        (("--request-timeout", "nan"), "--request-timeout must be from"),
        (("--max-upload-mb", "0"), "--max-upload-mb must be from"),
        (("--batching", "none"), "--batching"),
        (("--host", "0.0.0.0"), "say --no-auth"),
        (("--host", "no.such.host.invalid"), "no address of this machine"),
        (("--host", "no.such.host.invalid", "--no-auth"), "cannot listen on no.such.host.invalid port 0: "),
        (("--token-env", "WATCHLINE_NOT_SET"), "is not set"),
        (("--token-env", "A", "--no-auth"), "exclude each other"),
        (("--model", "nosuchmodel"), "nosuchmodel"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(flags: tuple[str, ...], words: str) -> None:
    done = watchline("serve", "--port", "0", "--model", "probe", *flags)
    assert done.code == 2
    lines = [k for k in done.err.splitlines() if not k.startswith("listening on")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Unknown error" not in lines[0]


def test_a_port_that_is_taken() -> None:
    with listen(ServeOptions(port=0)) as taken:
        port = taken.getsockname()[1]
        done = watchline("serve", "--port", str(port), "--model", "probe")
    assert (done.code, done.err) == (
        2,
        f"watchline: cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with --port, 0 takes a "
        "free one\n",
    )


def test_a_listener_closes_with_its_service() -> None:
    with served() as server:
        host, port = server.url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 5)


def test_options_that_are_right_are_taken() -> None:
    check(ServeOptions(port=0, workers=64, queue_depth=1, max_wait_ms=0))
    assert ServeOptions(workers=2, max_batch=16).capacity == 96
    assert ServeOptions(workers=2, max_batch=16, queue_depth=4).capacity == 64
