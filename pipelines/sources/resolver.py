"""Host names: asked of the system's resolver, with an error that a person understands."""

from __future__ import annotations

import socket
from typing import Any

from pipelines.errors import SourceError

Resolved = tuple[socket.AddressFamily, tuple[Any, ...]]


def addresses(host: str | None, port: int | None) -> list[Resolved]:
    """What TCP may connect to, family and address, in the resolver's order. Blocks as long as the resolver does.

    :raises SourceError: if nobody knows the host; permanent, unless it is the name server that did not answer.
    """
    try:
        return [(family, address) for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except socket.gaierror as error:
        again = error.errno == socket.EAI_AGAIN
        raise SourceError(f"the host {host!r} is not known ({error.strerror})", permanent=not again) from None
    except UnicodeError:  # a label that is empty or too long
        raise SourceError(f"{host!r} is not the name of a host", permanent=True) from None
