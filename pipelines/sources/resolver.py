"""Host names, looked up by the system's resolver, with messages that a person understands."""

from __future__ import annotations

import socket
from typing import Any

from pipelines.errors import SourceError

Resolved = tuple[socket.AddressFamily, tuple[Any, ...]]


def addresses(host: str | None, port: int | None) -> list[Resolved]:
    """The TCP addresses of a host, each with its family, in the resolver's order. Blocks as long as the resolver does.

    :raises SourceError: if the host is unknown (permanent), or the name server does not answer (not permanent).
    """
    try:
        return [(family, address) for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except socket.gaierror as error:
        again = error.errno == socket.EAI_AGAIN
        raise SourceError(f"the host {host!r} is not known ({error.strerror})", permanent=not again) from None
    except UnicodeError:  # a label of the name is empty or too long
        raise SourceError(f"{host!r} is not the name of a host", permanent=True) from None
