"""RTSP URLs, taken apart: host and port, the URI of requests, and the credentials, which are kept apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.redact import one_line, redact_url

PORTS = {"rtsp": 554, "rtsps": 322}
"""RFC 7826, section 22.3 (554 for RTSP over TCP, 322 over TLS)."""
MAX_URL = 4096
"""Characters, of a URL that is given or that a server names."""
MAX_SHOWN = 200
"""Characters of it in an error."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. `uri`: for requests, without user information and fragment, in visible ASCII."""

    scheme: Literal["rtsp", "rtsps"]
    host: str
    port: int
    uri: str
    credentials: Credentials | None = None

    def moved(self, location: str) -> Target:
        """The target of a redirect. The credentials go along to the same host only, and never from TLS to plain text.

        :raises SourceError: if the location is no RTSP address; permanent.
        """
        try:
            target = parse(join(self.uri, location))
        except SourceError as error:
            raise SourceError(f"redirected to {display(location)}: {error}", permanent=True) from None
        safe = target.host == self.host and not (self.scheme == "rtsps" and target.scheme == "rtsp")
        return replace(target, credentials=target.credentials or (self.credentials if safe else None))


def display(url: str) -> str:
    """A URL as people may see it: redacted, on one line, at most MAX_SHOWN characters."""
    # Redact before the cut: the end of a password may lie beyond it.
    return one_line(redact_url(url))[:MAX_SHOWN] if "://" in url else "an address without //"


def parse(url: str) -> Target:
    """A URL as a person or a server gives it.

    :raises SourceError: if it is malformed or not RTSP; permanent.
    """
    if len(url) > MAX_URL or CONTROL.search(url):
        raise _malformed(f"it is longer than {MAX_URL} characters, or holds control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # The standard library's other texts may quote a part of a password; the one about the range cannot.
        why = "the port is not within 1-65535" if "range" in str(error) else "host or port are malformed"
        raise _malformed(f"{why}; / ? # @ in a password are written as %2F %3F %23 %40") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise _malformed("rtsp:// or rtsps:// is needed")
    if not host or any(c.isspace() for c in host):
        raise _malformed("it names no host")
    if port == 0:
        raise _malformed("the port is not within 1-65535")
    place = _ascii_host(host) + (f":{port}" if port else "")
    uri = escaped(f"{scheme}://{place}{parts.path or '/'}" + (f"?{parts.query}" if parts.query else ""))
    # A zone (fe80::1%25eth0, RFC 6874) means something on this machine only.
    host = host.replace("%25", "%") if ":" in host else host
    return Target(scheme, host, port or PORTS[scheme], uri, _credentials(parts.netloc))  # type: ignore[arg-type]


def join(base: str, reference: str) -> str:
    """The absolute form of a URL that a header of the answer to `base` names."""
    reference = reference.strip()
    if not reference or SCHEME.match(reference):
        return reference or base
    root = "/".join(base.split("/", 3)[:3])
    return root + reference if reference.startswith("/") else base.rpartition("/")[0] + "/" + reference


def escaped(uri: str) -> str:
    """The URI with all characters percent-encoded that would end it, or its line, in a request. Encoded ones stay."""
    return quote(uri, safe=VISIBLE)


def without_user(uri: str) -> str:
    """An absolute URI of a server without the user information that some put there."""
    scheme, _, rest = uri.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _ascii_host(host: str) -> str:
    if ":" in host:
        return f"[{host.partition('%')[0]}]"
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise _malformed("the host's name has a form that no host has") from None


def _credentials(netloc: str) -> Credentials | None:
    who, at, _ = netloc.rpartition("@")
    if not at:
        return None
    user, _, password = who.partition(":")
    found = Credentials(unquote(user), unquote(password))
    if CONTROL.search(found.user):
        raise _malformed("the user's name holds control characters")
    return found


def _malformed(why: str) -> SourceError:
    return SourceError(f"the address is malformed: {why}", permanent=True)
