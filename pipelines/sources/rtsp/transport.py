"""What a server answers to SETUP: the Transport header (RFC 2326, section 12.39) and the Session header (12.37)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.sources.rtsp.message import Response

TIMEOUT_S = 60.0
"""Of a session whose server names none (RFC 2326, section 12.37)."""
LONGEST_S = 120.0
"""Believed of a server's own: a router on the way forgets a silent connection sooner than some servers say."""
PAIR = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setup:
    """How a track will come.

    channels: of RTP and RTCP on the connection, None if it does not come over it; ports: the server's two;
    source: the address that will send, as it was written.
    """

    session: str = ""
    timeout_s: float = TIMEOUT_S
    channels: tuple[int, int] | None = None
    ports: tuple[int, int] | None = None
    source: str = ""
    multicast: bool = False


def agreed(response: Response) -> Setup:
    """The answer to SETUP. What cannot be read counts as not said."""
    session, _, rest = response.headers.get("Session").partition(";")
    fields: dict[str, str] = {}
    for part in response.headers.get("Transport").partition(",")[0].split(";"):
        name, _, value = part.partition("=")
        fields.setdefault(name.strip().lower(), value.strip().strip('"'))
    channels, ports = _pair(fields.get("interleaved", ""), 255), _pair(fields.get("server_port", ""), 65535)
    return Setup(
        session.strip(),
        _timeout_s(rest),
        channels,
        ports if ports and min(ports) > 0 else None,
        fields.get("source", ""),
        "multicast" in fields,
    )


def _pair(text: str, most: int) -> tuple[int, int] | None:
    """ "6970-6971", or "6970" for that and the next."""
    found = PAIR.fullmatch(text)
    if found is None:
        return None
    first = int(found[1])
    second = int(found[2]) if found[2] else first + 1
    return (first, second) if max(first, second) <= most else None


def _timeout_s(text: str) -> float:
    for part in text.split(";"):
        name, _, value = part.partition("=")
        if name.strip().lower() == "timeout" and re.fullmatch(r"\d{1,9}", value.strip(), re.ASCII):
            return min(float(value), LONGEST_S) or TIMEOUT_S
    return TIMEOUT_S
