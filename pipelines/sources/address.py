"""Addresses as people may see them: without passwords."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from pipelines.errors import SourceError

SECRET = re.compile(r"(?i)(pass|pwd|token|secret|auth|key|sig|user|account)")


def shown(address: str) -> str:
    """The address without what it may carry in secret: user, password, and the values of telling query fields."""
    if "://" not in address:
        return address
    scheme, rest = address.split("://", 1)
    if "@" in rest:
        # Up to the last @: a raw @ or / in a password must not leave half of it behind.
        rest = "***@" + rest.rsplit("@", 1)[1]
    try:
        parts = urlsplit(f"{scheme}://{rest}")
    except ValueError:
        return f"{scheme}://***"
    fields = []
    for pair in parts.query.split("&") if parts.query else []:
        name, sep, value = pair.partition("=")
        fields.append(name + sep + ("***" if value and SECRET.search(name) else value))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "&".join(fields), ""))


def about(name: str, error: SourceError) -> SourceError:
    """The same error, with what it is about before it."""
    error.args = (f"{name}: {error}",)
    return error


def without(address: str, text: str) -> str:
    """`text` (an error message of a library) with every form of the address replaced by what may be seen."""
    return text.replace(address, shown(address)) if "://" in address else text
