"""Addresses of cameras and servers: who asks, and what people may see of them."""

from __future__ import annotations

import re
from urllib.parse import quote

from pipelines.errors import SourceError

RTSP = ("rtsp", "rtsps")
SCHEMES = ("http", "https", "tcp", "udp", "rtmp", "srt")
"""Of what else comes from the network, all by FFmpeg."""

_SLIP = re.compile(rf"(?is)[^\w/.]*({'|'.join(RTSP + SCHEMES)})\s*(?:[:;]\s*[/\\]*|[/\\]{{2,}})\s*(.*)")
_NO_SCHEME = re.compile(r"(?s)[^\w/.]*([^\s/:@]+\s*:.*@.*)")
_AROUND = " \t\r\n\"'<>"


def mistyped(text: str) -> str | None:
    """What was probably meant, if a text that is no address looks like one: a blank before it, `rtsp:/`, `rtsp//`, or
    `user:password@host`. None if it does not."""
    slip = _SLIP.fullmatch(text)
    if slip:
        return f"{slip[1].lower()}://{slip[2].strip(_AROUND)}"
    bare = _NO_SCHEME.fullmatch(text)
    return f"rtsp://{bare[1].strip(_AROUND)}" if bare else None


def with_credentials(address: str, user: str, password: str | None) -> str:
    """The address with a user and a password that are given as they are, whatever signs they hold."""
    scheme, _, rest = address.partition("://")
    who = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
    return f"{scheme}://{who}@{rest}"


def about(name: str, error: SourceError) -> SourceError:
    """The same error, with what it is about before it."""
    error.args = (f"{name}: {error}",)
    return error
