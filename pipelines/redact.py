"""Redaction of all text that people see: passwords are hidden, and control characters cannot move a terminal's cursor.

`user:password@` is hidden wherever it occurs, even in a malformed address: with a blank before it, with one slash, without
a scheme. A file path that contains such a part is hidden with it. Cameras also take secrets in paths and queries, in many
forms; these are hidden in every text that has the form of an address, and the rest of the address stays readable.
"""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "***"
MAX_PORT = 65535

_SECRET_NAMES = "pas|pwd|pw|psw|psk|token|secret|auth|key|sig|user|usr|account|login|cred|sess(?:ion)?_?id"
"""Substrings of the names of parameters that hold secrets (a regular expression)."""
_KEY = re.compile(rf".*(?:{_SECRET_NAMES}).*|[up]", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(rf"([?&](?:[^=&?\s]*(?:{_SECRET_NAMES})[^=&\s]*|[up])=)[^&\s'\"#]*[^&\s'\"#:,;.)]", re.IGNORECASE)
_SIZE = re.compile(r"synthetic:[^@\s]*@")
"""The beginning of a synthetic source, which looks like a user with a password but is no secret."""
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
"""The groups of an address: scheme and slashes, host and port, path, `?`, query. Any scheme, or a misspelled known one."""
_TAIL = ":,;.)>"
"""Characters after an address that belong to the sentence around it."""
_PLACE = re.compile(r"(?:\[[0-9a-f:.]+(?:%[\w.~-]*)?\]|[^:\[\]=&;,]*)(?::(\d{1,5}|PORT)?)?", re.IGNORECASE)
_EQUALS = re.compile("=|%3d", re.IGNORECASE)
_NEXT = rf"(?=(?:(?:[^\W_]|-)+|(?:{_SECRET_NAMES})\w*)(?:=|%3d)[^=&])"
_UNDER = re.compile(f"_{_NEXT}", re.IGNORECASE)
_IN_PATH = re.compile(rf"(&|%26|[;,]{_NEXT}|/(?![^/=&]+&))", re.IGNORECASE)
_IN_QUERY = re.compile(rf"(&|%26|;{_NEXT})", re.IGNORECASE)
"""Separators of fields in a path and in a query. No other character separates: a secret may contain it and would be cut."""
_NAMED = re.compile(r"[^:]+(?::|%3a)(?!//|%2f).+", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(r"[\dTZ.+-]*\d{1,2}(?:(?::|%3a)\d{2})+[\dTZ.+:-]*", re.IGNORECASE)


def redact_url(address: str) -> str:
    """An address, also a malformed one, with `***` in place of its secrets.

    Hidden are user and password (even if the host is missing), the values of path and query fields with a name such as
    `token`, query parts without a name, and the stream key at the end of an RTMP path. The fragment is removed.
    """
    before = address.rpartition("@")[0]
    if (":" in before or "//" in before) and not _SIZE.match(address):
        # Up to the last @: a password may contain a raw @, / or blank, and no part of it may stay visible.
        scheme = _SCHEME.match(address)
        address = (scheme[0] if scheme else "") + HIDDEN + address[address.rindex("@") :]
    if "://" in address:
        address = address.split("#", 1)[0]
    return _ADDRESS.sub(_redact_parts, _STREAM_KEY.sub(rf"\1{HIDDEN}", _FIELD.sub(rf"\1{HIDDEN}", address)))


def redact(text: str) -> str:
    """A text in which every part that may be an address is redacted by `redact_url`: first quoted parts, then each word."""
    if not any(mark in text for mark in ("@", "?", ":", "//", "\\\\")):
        return text
    text = _QUOTED.sub(lambda part: part[0][0] + _redact_quoted(part[0][1:-1]) + part[0][0], text)
    return _TOKEN.sub(lambda part: redact_url(part[0]), text)


def _redact_quoted(quoted: str) -> str:
    """The redacted content of a pair of quotes. Text with ": " is kept: it is a sentence between two apostrophes."""
    return quoted if ": " in quoted else redact_url(quoted)


def _redact_parts(found: re.Match[str]) -> str:
    """The redacted text of a match of _ADDRESS, each group by its own rules."""
    whole = found[0]
    tail = whole[max(len(whole.rstrip(_TAIL)), found.end(1) - found.start()) :]
    lead, place, path, mark, query = (_ADDRESS.match(whole[: len(whole) - len(tail)]) or found).groups()
    parts = _IN_QUERY.split(query)
    parts[::2] = [_fields(part) if not part or _EQUALS.search(part) else HIDDEN for part in parts[::2]]
    return lead + _place(place) + _path(path) + mark + "".join(parts) + tail


def _place(place: str) -> str:
    """Host and port, unchanged if they are valid. Else they are credentials without a host, or fields: these are redacted."""
    before, at, host = place.rpartition("@")
    valid = _PLACE.fullmatch(host)
    if valid and not (valid[1] and valid[1].isdigit() and int(valid[1]) > MAX_PORT):
        return place
    return before + at + (HIDDEN if ":" in host else _path(host))


def _path(path: str) -> str:
    """A path in which the values of secret fields are hidden."""
    parts = _IN_PATH.split(path)
    parts[::2] = [_fields(part) for part in parts[::2]]
    return "".join(parts)


def _fields(text: str) -> str:
    """One part of a path or query, redacted: `name:secret`, or one or more `key=value` with `_` between them."""
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
    """Whether a text has the form `name:value` and is not a time of day."""
    return _NAMED.fullmatch(text) is not None and not _TIME.fullmatch(text)


def one_line(text: str) -> str:
    """A text with control characters replaced by their escapes, so that it cannot move a cursor or begin a new line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """A text that is safe for a terminal: redacted, and without control characters."""
    return one_line(redact(text))


def redact_in(value: Any) -> Any:
    """A JSON value in which all strings are redacted, keys of objects included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact_in(k): redact_in(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [redact_in(v) for v in value]
    return value
