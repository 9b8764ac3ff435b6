"""What `watchline serve` can be told beside the model's own settings."""

from __future__ import annotations

import errno
import ipaddress
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.cores import cores
from pipelines.errors import UsageError

BATCHING = ("dynamic", "fixed")
BATCHES_A_WORKER = 3
"""Batches that may wait for each worker, by default."""
MAX_BATCH = 128
MAX_WORKERS = 64


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Names as the flags have them. queue_depth: in batches of max_batch, None: three for each worker."""

    workers: int = 1
    host: str = "127.0.0.1"
    port: int = 8000
    batching: str = "dynamic"
    max_batch: int = 16
    max_wait_ms: float = 5.0
    queue_depth: int | None = None
    request_timeout: float = 5.0
    max_upload_mb: float = 16.0
    token_env: str | None = None
    no_auth: bool = False

    @property
    def capacity(self) -> int:
        """Pictures that may wait."""
        return (self.queue_depth or BATCHES_A_WORKER * self.workers) * self.max_batch

    @property
    def max_upload(self) -> int:
        """Bytes of a request's body."""
        return int(self.max_upload_mb * 2**20)


def default_workers(device: str) -> int:
    """Workers where none were asked for: one on a GPU; on the CPU one for two cores, up to four, each of which holds the model.
    Where more than one runs, the others go on when one dies. On two cores one worker of two threads answers as many requests
    of 32 callers as two of one thread (1.0 to 1.1 times in six alternating runs), and sooner: p99 0.7 to 0.8 times as long, and
    of 100 requests a second that come by chance 99.5 % within 50 ms instead of 98 %."""
    return 1 if device != "cpu" else max(1, min(cores() // 2, 4))


def check(options: ServeOptions) -> None:
    """:raises UsageError: if a value is wrong; it says what was given and what is allowed."""
    limits = {
        "workers": (1, MAX_WORKERS),
        "port": (0, 65535),
        "max_batch": (1, MAX_BATCH),
        "queue_depth": (1, 10_000),
        "max_wait_ms": (0, 60_000),
        "request_timeout": (0.001, 3600),
        "max_upload_mb": (0.001, 1024),
    }
    for name, (least, most) in limits.items():
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise UsageError(f"--{name.replace('_', '-')} must be from {least} to {most}, got {value}")
    if options.batching not in BATCHING:
        raise UsageError(f"--batching {options.batching!r} is not known; allowed: {', '.join(BATCHING)}")
    if options.token_env is not None and options.no_auth:
        raise UsageError("--token-env and --no-auth exclude each other; leave one out")


def token(options: ServeOptions, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """The token that requests must show, None: none. It is never part of a message.

    :raises UsageError: if it is not there, or the address needs one.
    """
    if options.token_env is None:
        if not options.no_auth and not is_loopback(options.host):
            what = "who reaches it may use it: give a token with --token-env NAME, or say --no-auth"
            raise UsageError(f"--host {options.host} is more than this machine; {what}")
        return None
    return token_from(options.token_env, environ).encode()


def token_from(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """The token that a variable holds.

    :raises UsageError: if there is none, or what cannot stand in a header.
    """
    value = environ.get(name, "").strip()
    if not value:
        raise UsageError(f"--token-env {name}: that variable is not set, or empty; put the token into it")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError(f"--token-env {name}: a token has printable ASCII characters only, without blanks")
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address, whatever a name stands for."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise UsageError(f"--host {host!r} is no address of this machine: {error.strerror or error}") from None
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def listen(options: ServeOptions) -> socket.socket:
    """A listening socket. The kernel takes connections from now on.

    :raises UsageError: if the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = socket.create_server((options.host, options.port), family=family, backlog=2048)
        # Connections inherit it. Without, the body of an answer waits 40 ms for the ACK of its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        hint = "; choose another with --port, 0 takes a free one" if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        known = (error.errno or 0) > 0  # else it is about the name, and has words of its own
        why = os.strerror(error.errno or 0) if known else str(error.strerror).partition(" (while")[0]
        raise UsageError(f"cannot listen on {options.host} port {options.port}: {why}{hint}") from None


def url_of(listener: socket.socket) -> str:
    """Where it can be reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
