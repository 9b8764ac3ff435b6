"""Parses the response to SETUP: the Transport header (RFC 2326, section 12.39) and the Session header (12.37)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipelines.sources.rtsp.message import Response

TIMEOUT_S = 60.0
"""Session timeout if the server names none (RFC 2326, section 12.37)."""
LONGEST_S = 120.0
"""Upper limit of the server's session timeout: routers drop silent connections sooner than some servers promise."""
PAIR = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setup:
    """The transport of a track, as the server confirmed it."""

    session: str = ""
    """Identifier for the Session header of later requests."""
    timeout_s: float = TIMEOUT_S
    """Time after which the server ends a session without keep-alives."""
    channels: tuple[int, int] | None = None
    """Interleaved channels of RTP and RTCP; None if the track does not come over the RTSP connection."""
    ports: tuple[int, int] | None = None
    """The server's UDP ports of RTP and RTCP; None if it names none."""
    source: str = ""
    """The address from which the server sends, unchecked."""
    multicast: bool = False


def agreed(response: Response) -> Setup:
    """The transport in a response to SETUP. Invalid fields are ignored."""
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
    """The two numbers of "6970-6971", or of "6970", which means the same; None if one is invalid or above `most`."""
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
