"""Authentication at a camera: digest (RFC 7616 and the older RFC 2617 and RFC 2069) and basic (RFC 7617)."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipelines.credentials import Credentials
from pipelines.redact import one_line

HASHES: dict[str, Callable[[bytes], str]] = {
    "MD5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
    "SHA-256": lambda data: hashlib.sha256(data).hexdigest(),
}
STRENGTH = ("basic", "MD5", "SHA-256")
"""Supported schemes and hashes, the weakest first. Many cameras offer only basic, over a plain connection."""
MAX_CHALLENGES = 32
PART = re.compile(r'([^\s,="]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"?|([^\s,]*)))?')
"""A scheme, or a parameter with its quoted or plain value; a comma between them may be missing."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge of a WWW-Authenticate header. Names are in lower case, values without quotes."""

    scheme: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def strength(self) -> int:
        """Index in STRENGTH, -1 if the challenge is not supported."""
        if self.scheme == "basic":
            return STRENGTH.index("basic")
        if self.scheme != "digest" or "nonce" not in self.values:
            return -1
        if self.values.get("qop") and not self.has_auth:
            return -1  # only auth-int, which signs the body too
        return STRENGTH.index(self.hash) if self.hash in STRENGTH else -1

    @property
    def hash(self) -> str:
        """Name of the hash in upper case, without -SESS: MD5, SHA-256 or an unsupported one."""
        return self.values.get("algorithm", "MD5").upper().removesuffix("-SESS")

    @property
    def session(self) -> bool:
        """Whether the first hash includes both nonces (-sess)."""
        return self.values.get("algorithm", "").upper().endswith("-SESS")

    @property
    def has_auth(self) -> bool:
        """Whether the quality of protection (qop) `auth` is offered. Without any qop, RFC 2069 applies."""
        return "auth" in re.split(r"[\s,]+", self.values.get("qop", "").lower())

    @property
    def stale(self) -> bool:
        """Whether only the nonce was too old: user and password are right."""
        return self.values.get("stale", "").lower() == "true"


def challenges(headers: Iterable[str]) -> list[Challenge]:
    """The challenges in the values of all WWW-Authenticate headers of a response, at most MAX_CHALLENGES.

    One header may have several challenges.
    """
    found: list[Challenge] = []
    for header in headers:
        inside = False
        for part in PART.finditer(header):
            name, quoted, plain = part.groups()
            if quoted is None and plain is None:
                if len(found) == MAX_CHALLENGES:
                    return found
                found.append(Challenge(name.lower()))
                inside = True
            elif inside:
                value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
                found[-1].values.setdefault(name.lower(), value)
    return found


class Login:
    """Makes the Authorization headers of one connection and limits the number of tries. Thread: one, the client's.

    A challenge is answered once. It is answered once more if the server says that only the nonce was stale, or if the
    server accepted the credentials before: many cameras expire nonces without the stale flag.

    :param credentials: None if the camera has none; then every challenge ends the tries.
    :param cnonce: makes a new client nonce.
    """

    def __init__(self, credentials: Credentials | None, cnonce: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._credentials = credentials
        self._make = cnonce
        self._challenge: Challenge | None = None
        self._cnonce = ""
        self._count = 0
        self._sent = False
        self._proven = False
        self._failures = 0
        self.unsupported = ""
        """The schemes that the server offered, for people, if none of them is supported; else empty."""

    @property
    def tried(self) -> bool:
        """Whether the server refused the credentials after the last successful request."""
        return self._failures > 0

    def header(self, method: str, uri: str) -> str | None:
        """The value of the next request's Authorization header; None without a challenge or without credentials."""
        self._sent = self._challenge is not None and self._credentials is not None
        if self._challenge is None or self._credentials is None:
            return None
        if self._challenge.scheme == "basic":
            pair = f"{self._credentials.user}:{self._credentials.password}"
            return "Basic " + base64.b64encode(pair.encode(errors="surrogateescape")).decode()
        self._count += 1
        return digest(self._credentials, self._challenge, method, uri, cnonce=self._cnonce, count=self._count)

    def accepted(self) -> None:
        """Note that the status of the last response was not 401."""
        self._proven = self._proven or self._sent
        self._failures = 0

    def refused(self, headers: Iterable[str]) -> bool:
        """Take the challenges of a response with status 401. Returns whether to send the request again.

        :param headers: the values of its WWW-Authenticate headers.
        """
        self.unsupported = ""
        offered = challenges(headers)
        best = max(offered, key=lambda c: c.strength, default=None)
        if best is None or best.strength < 0:
            self.unsupported = one_line(", ".join(dict.fromkeys(c.scheme for c in offered))[:60])
            return False
        if self._credentials is None:
            return False
        if self._sent:
            self._failures += 1
            again = best.stale or self._proven
            self._proven = False
            if self._failures > 1 or not again:
                return False
        self._challenge, self._cnonce, self._count = best, self._make(), 0
        return True

    def unanswered(self) -> bool:
        """Note that the connection ended before the last response. Returns whether the request was the first one with
        credentials."""
        first = self._sent and not self._proven
        self._sent = False
        return first


def digest(credentials: Credentials, challenge: Challenge, method: str, uri: str, *, cnonce: str, count: int) -> str:
    """The value of the Authorization header for a digest challenge (RFC 7616, section 3.4).

    :param challenge: with a hash of HASHES and a nonce.
    :param cnonce: the client nonce.
    :param count: number of requests with this nonce, this one included.
    """
    values, hashed = challenge.values, HASHES[challenge.hash]
    realm, nonce = values.get("realm", ""), values["nonce"]

    def h(*parts: str) -> str:
        return hashed(":".join(parts).encode(errors="surrogateescape"))

    first = h(credentials.user, realm, credentials.password)
    if challenge.session:
        first = h(first, nonce, cnonce)
    second, nc = h(method, uri), f"{count:08x}"
    protected = (nonce, nc, cnonce, "auth") if challenge.has_auth else (nonce,)
    response = h(first, *protected, second)
    quoted = {"username": credentials.user, "realm": realm, "nonce": nonce, "uri": uri, "response": response}
    fields = [f"{name}={_quoted(value)}" for name, value in quoted.items()]
    if "algorithm" in values:
        fields.append(f"algorithm={values['algorithm']}")
    if "opaque" in values:
        fields.append(f"opaque={_quoted(values['opaque'])}")
    if challenge.has_auth:
        fields += ["qop=auth", f"nc={nc}"]
    if challenge.has_auth or challenge.session:
        fields.append(f"cnonce={_quoted(cnonce)}")
    return "Digest " + ", ".join(fields)


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
