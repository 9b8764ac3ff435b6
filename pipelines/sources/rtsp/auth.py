"""User and password for a camera: digest (RFC 7616, and the older forms of RFC 2617 and RFC 2069) and basic (RFC 7617)."""

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
"""What is understood, the weakest first. Basic over a plain connection is what many cameras offer, and nothing else."""
MAX_CHALLENGES = 32
PART = re.compile(r'([^\s,="]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"?|([^\s,]*)))?')
"""A scheme, or a parameter with its quoted or plain value; a comma between them may be missing."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """One offer of a WWW-Authenticate header; names in lower case, values without their quotes."""

    scheme: str
    values: dict[str, str] = field(default_factory=dict)

    @property
    def strength(self) -> int:
        """Its place in STRENGTH, -1 if it is not understood."""
        if self.scheme == "basic":
            return STRENGTH.index("basic")
        if self.scheme != "digest" or "nonce" not in self.values:
            return -1
        if self.values.get("qop") and not self.has_auth:
            return -1  # auth-int alone: the body would have to be signed, too
        return STRENGTH.index(self.hash) if self.hash in STRENGTH else -1

    @property
    def hash(self) -> str:
        """MD5 or SHA-256, without -sess; what the server said otherwise."""
        return self.values.get("algorithm", "MD5").upper().removesuffix("-SESS")

    @property
    def session(self) -> bool:
        """Whether the first hash takes both nonces in (-sess)."""
        return self.values.get("algorithm", "").upper().endswith("-SESS")

    @property
    def has_auth(self) -> bool:
        """Whether the protection `auth` is offered; without any qop the form of RFC 2069 holds."""
        return "auth" in re.split(r"[\s,]+", self.values.get("qop", "").lower())

    @property
    def stale(self) -> bool:
        """Whether only the nonce was too old: user and password were right."""
        return self.values.get("stale", "").lower() == "true"


def challenges(headers: Iterable[str]) -> list[Challenge]:
    """The offers in all WWW-Authenticate headers of an answer; one header may hold several."""
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
    """What a client says about itself, and how often. Thread: the client's own.

    A challenge is answered once; once more when the server says that only the nonce was stale, or when it had accepted
    the credentials before (many cameras let nonces grow old without saying so). A camera that asks for ever hears no more.
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
        self.unspoken = ""
        """The schemes of a server that offers none that is understood."""

    @property
    def tried(self) -> bool:
        """Whether the credentials themselves were refused, since a request last succeeded."""
        return self._failures > 0

    def header(self, method: str, uri: str) -> str | None:
        """The Authorization header of the next request; None as long as nobody asked for one."""
        self._sent = self._challenge is not None and self._credentials is not None
        if self._challenge is None or self._credentials is None:
            return None
        if self._challenge.scheme == "basic":
            pair = f"{self._credentials.user}:{self._credentials.password}"
            return "Basic " + base64.b64encode(pair.encode(errors="surrogateescape")).decode()
        self._count += 1
        return digest(self._credentials, self._challenge, method, uri, cnonce=self._cnonce, count=self._count)

    def accepted(self) -> None:
        """The last request was not answered with 401."""
        self._proven = self._proven or self._sent
        self._failures = 0

    def refused(self, headers: Iterable[str]) -> bool:
        """The last request was answered with 401 and these challenges: whether it is worth asking again."""
        self.unspoken = ""
        offered = challenges(headers)
        best = max(offered, key=lambda c: c.strength, default=None)
        if best is None or best.strength < 0:
            self.unspoken = one_line(", ".join(dict.fromkeys(c.scheme for c in offered))[:60])
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
        """The connection was lost before the last request was answered: whether that was the first with credentials."""
        first = self._sent and not self._proven
        self._sent = False
        return first


def digest(who: Credentials, challenge: Challenge, method: str, uri: str, *, cnonce: str, count: int) -> str:
    """The Authorization header for a digest challenge (RFC 7616, section 3.4); `count` is how often its nonce was used."""
    values, hashed = challenge.values, HASHES[challenge.hash]
    realm, nonce = values.get("realm", ""), values["nonce"]

    def h(*parts: str) -> str:
        return hashed(":".join(parts).encode(errors="surrogateescape"))

    first = h(who.user, realm, who.password)
    if challenge.session:
        first = h(first, nonce, cnonce)
    second, nc = h(method, uri), f"{count:08x}"
    protected = (nonce, nc, cnonce, "auth") if challenge.has_auth else (nonce,)
    fields = {"username": who.user, "realm": realm, "nonce": nonce, "uri": uri, "response": h(first, *protected, second)}
    said = [f"{name}={_quoted(value)}" for name, value in fields.items()]
    if "algorithm" in values:
        said.append(f"algorithm={values['algorithm']}")
    if "opaque" in values:
        said.append(f"opaque={_quoted(values['opaque'])}")
    if challenge.has_auth:
        said += ["qop=auth", f"nc={nc}"]
    if challenge.has_auth or challenge.session:
        said.append(f"cnonce={_quoted(cnonce)}")
    return "Digest " + ", ".join(said)


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
