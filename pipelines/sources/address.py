"""Addresses of cameras, servers and files: schemes, endings, credentials, and slips in writing them. Imports nothing heavy."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from pipelines.credentials import Credentials
from pipelines.errors import SourceError

RTSP = ("rtsp", "rtsps")
SCHEMES = ("http", "https", "tcp", "udp", "rtmp", "srt")
"""Other schemes, all read by FFmpeg."""
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")
"""Endings, in lower case, of files that are read as pictures."""

_SLIP = re.compile(rf"(?is)[^\w/.]*({'|'.join(RTSP + SCHEMES)})\s*(?:[:;]\s*[/\\]*|[/\\]{{2,}})\s*(.*)")
_NO_SCHEME = re.compile(r"(?s)[^\w/.]*([^\s/:@]+\s*:.*@.*)")
_AROUND = " \t\r\n\"'<>"


def mistyped(text: str) -> str | None:
    """The address that a text was probably meant to be, if it has a blank before it, `rtsp:/`, `rtsp//`, or is
    `user:password@host`; None if it does not look like an address."""
    slip = _SLIP.fullmatch(text)
    if slip:
        return f"{slip[1].lower()}://{slip[2].strip(_AROUND)}"
    bare = _NO_SCHEME.fullmatch(text)
    return f"rtsp://{bare[1].strip(_AROUND)}" if bare else None


def split_credentials(address: str) -> tuple[str, Credentials | None]:
    """An address without its user and password, and these (percent-decoded), or None. Bytes that are not UTF-8 are kept."""
    scheme, mark, rest = address.partition("://")
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login, _, _ = place.rpartition("@")
    if not mark or not login:
        return address, None
    user, _, password = (unquote(part, errors="surrogateescape") for part in login.partition(":"))
    return f"{scheme}://{rest[len(login) + 1 :]}", Credentials(user, password)


def with_credentials(address: str, credentials: Credentials | None) -> str:
    """The address with its credentials, as FFmpeg needs it. Use it only to open the address; never store or show it."""
    if credentials is None:
        return address
    scheme, _, rest = address.partition("://")
    user, password = (quote(part, safe="", errors="surrogateescape") for part in (credentials.user, credentials.password))
    return f"{scheme}://{user}:{password}@{rest}" if password else f"{scheme}://{user}@{rest}"


def about(name: str, error: SourceError) -> SourceError:
    """Prefix the error's message with the name of its source. Returns the same error."""
    error.args = (f"{name}: {error}",)
    return error
