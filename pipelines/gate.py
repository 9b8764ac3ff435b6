"""The one gate for text that people see: no password passes it, and nothing that would move a terminal's cursor.

What holds `user:password@` is hidden wherever it stands, also where nobody can tell an address any more: with a blank
before it, with one slash, without a scheme. A path that has such a part is hidden with it.
"""

from __future__ import annotations

import re
from typing import Any

SECRET = r"[^=&?\s]*(?:pass|pwd|token|secret|auth|key|sig|user|account)[^=&\s]*"
HIDDEN = "***"

_FIELD = re.compile(rf"([?&]{SECRET}=)[^&\s'\"#]*[^&\s'\"#:,;.)]", re.IGNORECASE)
_SIZE = re.compile(r"synthetic:[^@\s]*@")
"""A source that has the form of a user with a password."""
_SCHEME = re.compile(r"""[\s"'(<-]*[A-Za-z][A-Za-z0-9+.-]*(?:\s*:\s*/+|//+|:\\+)\s*""")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_TOKEN = re.compile(r"[^\s'\"]*[^\s'\",;]")
_WHO = re.compile(r"[^\s@]*:.*@|//.*@", re.DOTALL)
_STREAM_KEY = re.compile(r"(?i)(rtmp[a-z]*:/+[^\s'\"/]+(?:/[^\s'\"/]+)*/)[^\s'\"/]*[^\s'\"/:,;.)](?=/*(?:$|[\s'\":,;.)]))")


def shown(address: str) -> str:
    """One address, or what was meant as one, without user and password, the values of telling query fields, its fragment,
    and the stream key that ends an RTMP path."""
    who = _WHO.search(address)
    if who and not _SIZE.match(address):
        # Up to the last @: a raw @, / or blank in a password must not leave half of it behind.
        scheme = _SCHEME.match(address)
        address = (scheme[0] if scheme else "") + HIDDEN + address[address.rindex("@") :]
    if "://" in address:
        address = address.split("#", 1)[0]
    return _STREAM_KEY.sub(rf"\1{HIDDEN}", _FIELD.sub(rf"\1{HIDDEN}", address))


def hidden(text: str) -> str:
    """A text with every part that may be an address as `shown` shows it: what is in quotes, then each word."""
    if "@" not in text and "?" not in text and "rtmp" not in text.lower():
        return text
    text = _QUOTED.sub(lambda part: part[0][0] + _kept(part[0][1:-1]) + part[0][0], text)
    return _TOKEN.sub(lambda part: shown(part[0]), text)


def _kept(quoted: str) -> str:
    """What stands between two apostrophes of a sentence is no address."""
    return quoted if ": " in quoted else shown(quoted)


def one_line(text: str) -> str:
    """With control characters as their escapes, which neither move a cursor nor begin a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(text: str) -> str:
    """A text as it may stand on a terminal."""
    return one_line(hidden(text))


def hidden_in(value: Any) -> Any:
    """What JSON can hold, with all its texts `hidden`, names of fields too."""
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, dict):
        return {hidden_in(k): hidden_in(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [hidden_in(v) for v in value]
    return value
