"""The one gate for text that people see: no password passes it, and nothing that would move a terminal's cursor.

What holds `user:password@` is hidden wherever it stands, also where nobody can tell an address any more: with a blank
before it, with one slash, without a scheme. A path that has such a part is hidden with it. Cameras also take secrets in
paths and queries, in many forms; in what has the form of an address those are hidden, and the rest stays to be read.
"""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
MAX_PORT = 65535

_TELLING = "pas|pwd|pw|psw|psk|token|secret|auth|key|sig|user|usr|account|login|cred|sess(?:ion)?_?id"
"""What a key holds whose value is nobody's business."""
_KEY = re.compile(rf".*(?:{_TELLING}).*|[up]", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(rf"([?&](?:[^=&?\s]*(?:{_TELLING})[^=&\s]*|[up])=)[^&\s'\"#]*[^&\s'\"#:,;.)]", re.IGNORECASE)
_SIZE = re.compile(r"synthetic:[^@\s]*@")
"""A source that has the form of a user with a password."""
_SCHEME = re.compile(r"""[\s"'(<-]*[A-Za-z][A-Za-z0-9+.-]*(?:\s*:\s*/+|//+|:\\+)\s*""")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_TOKEN = re.compile(r"[^\s'\"]*[^\s'\",;]")
_STREAM_KEY = re.compile(
    r"(?i)(rtmp[a-z]*:/+[^\s'\"/?]+(?:/[^\s'\"/?]+)*/)"
    r"(?:[^\s'\"/?]*\?[^\s'\"]*|[^\s'\"/?]*)[^\s'\"/:,;.)](?=/*(?:$|[\s'\":,;.)]))"
)
_ADDRESS = re.compile(
    r"(?is)((?<!\w)(?:rtsps?|https?|tcp|udp|rtmp|srt)\s*(?:[:;]\s*[/\\]*|[/\\]{2,})\s*|://+)"
    r"([^/\\?#]*)([^?]*)(\??)(.*)"
)
"""What leads to it, the place, the path, and the query; with any scheme, or with a known one that is written badly."""
_TAIL = ":,;.)>"
"""What ends a word of a sentence rather than an address."""
_PLACE = re.compile(r"(?:\[[0-9a-f:.]+(?:%[\w.~-]*)?\]|[^:\[\]=&;,]*)(?::(\d{1,5}|PORT)?)?", re.IGNORECASE)
_EQUALS = re.compile("=|%3d", re.IGNORECASE)
_NEXT = rf"(?=(?:(?:[^\W_]|-)+|(?:{_TELLING})\w*)(?:=|%3d)[^=&])"
_UNDER = re.compile(f"_{_NEXT}", re.IGNORECASE)
_IN_PATH = re.compile(rf"(&|%26|[;,]{_NEXT}|/(?![^/=&]+&))", re.IGNORECASE)
_IN_QUERY = re.compile(rf"(&|%26|;{_NEXT})", re.IGNORECASE)
"""Other signs end nothing: a secret may hold them, and half of it must not be left behind."""
_NAMED = re.compile(r"[^:]+(?::|%3a)(?!//|%2f).+", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(r"[\dTZ.+-]*\d{1,2}(?:(?::|%3a)\d{2})+[\dTZ.+:-]*", re.IGNORECASE)


def redact_url(address: str) -> str:
    """One address, or what was meant as one, without user and password (also where the host was forgotten), the values of
    telling fields of its path and query, what is named in neither, its fragment, and the stream key that ends an RTMP path."""
    who = address.rpartition("@")[0]
    if (":" in who or "//" in who) and not _SIZE.match(address):
        # Up to the last @: a raw @, / or blank in a password must not leave half of it behind.
        scheme = _SCHEME.match(address)
        address = (scheme[0] if scheme else "") + HIDDEN + address[address.rindex("@") :]
    if "://" in address:
        address = address.split("#", 1)[0]
    return _ADDRESS.sub(_address, _STREAM_KEY.sub(rf"\1{HIDDEN}", _FIELD.sub(rf"\1{HIDDEN}", address)))


def redact(text: str) -> str:
    """A text with every part that may be an address as `shown` shows it: what is in quotes, then each word."""
    if not any(mark in text for mark in ("@", "?", ":", "//", "\\\\")):
        return text
    text = _QUOTED.sub(lambda part: part[0][0] + _kept(part[0][1:-1]) + part[0][0], text)
    return _TOKEN.sub(lambda part: redact_url(part[0]), text)


def _kept(quoted: str) -> str:
    """What stands between two apostrophes of a sentence is no address."""
    return quoted if ": " in quoted else redact_url(quoted)


def _address(found: re.Match[str]) -> str:
    whole = found[0]
    tail = whole[max(len(whole.rstrip(_TAIL)), found.end(1) - found.start()) :]
    lead, place, path, mark, query = (_ADDRESS.match(whole[: len(whole) - len(tail)]) or found).groups()
    parts = _IN_QUERY.split(query)
    parts[::2] = [_fields(part) if not part or _EQUALS.search(part) else HIDDEN for part in parts[::2]]
    return lead + _place(place) + _path(path) + mark + "".join(parts) + tail


def _place(place: str) -> str:
    """Host and port. What is neither is a user and a password whose host was forgotten, or fields."""
    who, at, host = place.rpartition("@")
    valid = _PLACE.fullmatch(host)
    if valid and not (valid[1] and valid[1].isdigit() and int(valid[1]) > MAX_PORT):
        return place
    return who + at + (HIDDEN if ":" in host else _path(host))


def _path(path: str) -> str:
    parts = _IN_PATH.split(path)
    parts[::2] = [_fields(part) for part in parts[::2]]
    return "".join(parts)


def _fields(text: str) -> str:
    """`name:secret`, or `key=value` once or more with `_` between."""
    if not _EQUALS.search(text):
        return HIDDEN if _named(text) else text
    done = []
    while equals := _EQUALS.search(text):
        following = _UNDER.search(text, equals.end())
        end = following.start() if following else len(text)
        key, value = text[: equals.start()], text[equals.end() : end]
        done.append(key + equals[0] + (HIDDEN if value and (_KEY.fullmatch(key) or _named(value)) else value))
        text = text[end:]
    return "".join(done) + text


def _named(text: str) -> bool:
    return _NAMED.fullmatch(text) is not None and not _TIME.fullmatch(text)


def one_line(text: str) -> str:
    """With control characters as their escapes, which neither move a cursor nor begin a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """A text as it may stand on a terminal."""
    return one_line(redact(text))


def redact_in(value: Any) -> Any:
    """What JSON can hold, with all its texts `hidden`, names of fields too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact_in(k): redact_in(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact_in(v) for v in value]
    return value
