"""The options of `watchline serve` other than those of the model; its token, and its listening socket."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from app.config import MAX_BATCH, MAX_WORKERS
from app.options import check as check_options
from app.options import option
from pipelines.choices import Batching
from pipelines.cores import cores
from pipelines.errors import UsageError

BATCHES_A_WORKER = 3
"""Default number of batches that may wait per worker."""
WHERE, HOW = "where, and for whom", "how requests are worked on"
SERVE = ("serve",)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `watchline serve` other than those of the model."""

    host: str = option("127.0.0.1", "", SERVE, WHERE, metavar="ADDRESS", shown="127.0.0.1: this machine only")
    port: int = option(8000, "0 takes a free one", SERVE, WHERE, metavar="N", least=0, most=65535)
    token_env: str | None = option(None, "the variable that holds the token requests must show", SERVE, WHERE, metavar="NAME")
    no_auth: bool = option(False, "other machines may ask without a token", SERVE, WHERE)
    workers: int = option(
        1,
        "worker processes",
        SERVE,
        HOW,
        metavar="N",
        shown="one for two cores, up to 4; 1 on a GPU",
        least=1,
        most=MAX_WORKERS,
    )
    batching: Batching = option("dynamic", "by deadlines, or full batches", SERVE, HOW)
    max_batch: int = option(16, "largest batch", SERVE, HOW, metavar="N", least=1, most=MAX_BATCH)
    max_wait_ms: float = option(5.0, "wait at most so long for a full batch", SERVE, HOW, metavar="MS", least=0, most=60_000)
    queue_depth: int | None = option(
        None, "batches that may wait", SERVE, HOW, metavar="N", shown="3 for each worker", least=1, most=10_000
    )
    request_timeout: float = option(
        5.0, "seconds until a request without a deadline ends", SERVE, HOW, metavar="S", least=0.001, most=3600
    )
    max_upload_mb: float = option(16.0, "largest body", SERVE, HOW, metavar="MB", least=0.001, most=1024)

    @property
    def capacity(self) -> int:
        """Most pictures that wait."""
        return (self.queue_depth or BATCHES_A_WORKER * self.workers) * self.max_batch

    @property
    def max_upload(self) -> int:
        """Most bytes of a body."""
        return int(self.max_upload_mb * 2**20)


def default_workers(device: str) -> int:
    """The default number of workers: one on a GPU; on the CPU one per two cores, at most four, because each holds the model.
    With several workers, the others continue if one dies. Measured on two cores: one worker with two threads answers as many
    requests of 32 clients as two workers with one thread (1.0 to 1.1 times in six alternating runs), and sooner: its p99 is
    0.7 to 0.8 times as long, and of 100 requests per second at random times it answers 99.5 % within 50 ms instead of 98 %."""
    return 1 if device != "cpu" else max(1, min(cores() // 2, 4))


def check(options: ServeOptions) -> None:
    """:raises UsageError: if a value is wrong; the message gives the value and the allowed ones."""
    check_options(options)
    if options.token_env is not None and options.no_auth:
        raise UsageError("--token-env and --no-auth exclude each other; leave one out")


def token(options: ServeOptions, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """The token of requests; None if they need none. No message contains it.

    :raises UsageError: if its variable is not set, or if other machines reach the address and there is no token.
    """
    if options.token_env is None:
        if not options.no_auth and not is_loopback(options.host):
            what = "all who reach it may use it: give a token with --token-env NAME, or say --no-auth"
            raise UsageError(f"--host {options.host} is more than this machine; {what}")
        return None
    return token_from(options.token_env, environ).encode()


def token_from(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """The token in the environment variable `name`.

    :raises UsageError: if the variable is not set or empty, or has characters that a header cannot hold.
    """
    value = environ.get(name, "").strip()
    if not value:
        raise UsageError(f"--token-env {name}: that variable is not set, or empty; put the token into it")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"--token-env {name}: a token has printable ASCII characters only, without blanks")
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. Resolves a name first.

    :raises UsageError: if the name has no address.
    """
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error.strerror or error}") from None
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def listen(options: ServeOptions) -> socket.socket:
    """A listening socket. The kernel accepts connections from now on.

    :raises UsageError: if the address is in use, or is no address of this machine.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=2048)
        # Connections inherit this option. Without it, the body of an answer waits 40 ms for the ACK of its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        hint = "; choose another with --port, 0 takes a free one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        known = (error.errno or 0) > 0  # other errors are about the name, and have a text of their own
        why = os.strerror(error.errno or 0) if known else str(error.strerror).partition(" (while")[0]
        raise UsageError(f"cannot listen on {options.host} port {options.port}: {why}{hint}") from None


def url_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
