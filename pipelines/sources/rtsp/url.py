"""Parses RTSP URLs into host, port, the URI of requests, and the credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.redact import one_line, redact_url

PORTS = {"rtsp": 554, "rtsps": 322}
"""Default ports (RFC 7826, section 22.3): 554 for RTSP over TCP, 322 over TLS."""
MAX_URL = 4096
"""Most characters of a URL, from a person or a server."""
MAX_SHOWN = 200
"""Most characters of a URL in a message."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
VISIBLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed RTSP URL."""

    scheme: Literal["rtsp", "rtsps"]
    host: str
    port: int
    uri: str
    """The URI of requests: without user information and fragment, in visible ASCII."""
    credentials: Credentials | None = None

    def moved(self, location: str) -> Target:
        """The target of a redirect. It keeps the credentials only on the same host, and not from rtsps to rtsp.

        :param location: the value of the Location header.
        :raises SourceError: if the location is no RTSP address; permanent.
        """
        try:
            target = parse(join(self.uri, location))
        except SourceError as error:
            raise SourceError(f"redirected to {display(location)}: {error}", permanent=True) from None
        safe = target.host == self.host and not (self.scheme == "rtsps" and target.scheme == "rtsp")
        return replace(target, credentials=target.credentials or (self.credentials if safe else None))


def display(url: str) -> str:
    """A URL for messages: redacted, on one line, at most MAX_SHOWN characters."""
    # Redacted before it is cut: a password that is cut in the middle would not be recognised.
    return one_line(redact_url(url))[:MAX_SHOWN] if "://" in url else "an address without //"


def parse(url: str) -> Target:
    """Parse a URL from a person or a server.

    :raises SourceError: if it is malformed or not RTSP; permanent.
    """
    if len(url) > MAX_URL or CONTROL.search(url):
        raise _malformed(f"it is longer than {MAX_URL} characters, or holds control characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        # Other messages of the standard library than the one about the range may quote a part of a password.
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
    # The zone of an address (fe80::1%25eth0, RFC 6874) is for this machine only, so `uri` has none.
    host = host.replace("%25", "%") if ":" in host else host
    return Target(scheme, host, port or PORTS[scheme], uri, _credentials(parts.netloc))  # type: ignore[arg-type]


def join(base: str, reference: str) -> str:
    """The absolute form of `reference`, a URL in a header of the response to a request for `base`."""
    reference = reference.strip()
    if not reference or SCHEME.match(reference):
        return reference or base
    root = "/".join(base.split("/", 3)[:3])
    return root + reference if reference.startswith("/") else base.rpartition("/")[0] + "/" + reference


def escaped(uri: str) -> str:
    """The URI with all characters percent-encoded but visible ASCII, so that none can end it or its line in a request."""
    return quote(uri, safe=VISIBLE)


def without_user(uri: str) -> str:
    """An absolute URI without user information, which some servers add."""
    scheme, _, rest = uri.partition("://")
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _ascii_host(host: str) -> str:
    if ":" in host:
        return f"[{host.partition('%')[0]}]"
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise _malformed("the host name is not valid") from None


def _credentials(netloc: str) -> Credentials | None:
    userinfo, at, _ = netloc.rpartition("@")
    if not at:
        return None
    user, _, password = userinfo.partition(":")
    found = Credentials(unquote(user), unquote(password))
    if CONTROL.search(found.user):
        raise _malformed("the user's name holds control characters")
    return found


def _malformed(why: str) -> SourceError:
    return SourceError(f"the address is malformed: {why}", permanent=True)
