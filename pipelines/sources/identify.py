"""Identifies a source from its text: kind, name, address, and the credentials, which are removed from the address here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pipelines.choices import SourceKind
from pipelines.credentials import Credentials
from pipelines.errors import UsageError
from pipelines.redact import HIDDEN, redact_url
from pipelines.sources.address import PICTURE_SUFFIXES, RTSP, SCHEMES, mistyped, split_credentials
from pipelines.sources.files.images import animated
from pipelines.sources.network import speaks
from pipelines.sources.synthetic import Synthetic

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
ALLOWED = (
    f"a file, a quoted glob, a folder, {'://, '.join(RTSP + SCHEMES)}:// (each where FFmpeg has it: see `doctor`), "
    "a device number, /dev/videoN, a .streams or .txt list, or synthetic:WxH@FPS"
)
MAX_NAME = 60
"""Most characters of a name that is made from an address."""


@dataclass(frozen=True, slots=True)
class Identified:
    """A source. name: of its stream, without secrets; address: without credentials; pictures: the one picture file, or none if
    the source is of another kind."""

    name: str
    kind: SourceKind
    address: str
    pictures: tuple[Path, ...] = ()
    credentials: Credentials | None = None


def names_path(text: str) -> bool:
    """Whether a text names something in the file system, rather than a device, an address or a generated picture."""
    return not (re.fullmatch(r"\d+|/dev/video\d+", text) or text.startswith("synthetic:") or ADDRESS.match(text))


def identify(text: str) -> Identified:
    """The source that a text names. Opens nothing except the header of a picture file.

    A path need not exist: it is then of kind "file". Callers expand globs, folders and lists before.

    :raises UsageError: if the text is empty, malformed, or of an unknown kind.
    """
    if not text.strip():
        raise UsageError("a source is empty; name one, or leave it out (is a variable not set?)")
    if names_path(text):
        return _path(text)
    if ADDRESS.match(text):
        return _address(text)
    if text.startswith("synthetic:"):
        Synthetic.parse(text)  # only to check it
        return Identified(text.replace(":", "-"), "synthetic", text)
    device = f"/dev/video{int(text)}" if text.isdigit() else text
    return Identified(Path(device).name, "device", device)


def check_mistyped(text: str) -> None:
    """Check a text that is not the path of a file.

    :raises UsageError: if it looks like a misspelled address.
    """
    meant = mistyped(text)
    if meant is not None:
        raise UsageError(f"{redact_url(text)!r} is neither a file that exists nor a valid address; write {redact_url(meant)!r}")


def _path(text: str) -> Identified:
    path = Path(text)
    if not path.exists():
        check_mistyped(text)
    if path.suffix.lower() in PICTURE_SUFFIXES and not animated(path):
        return Identified(path.stem, "images", text, (path,))
    return Identified(path.stem or path.name, "file", text)  # "/" has no stem


def _address(text: str) -> Identified:
    scheme = text.split("://")[0].lower()
    _check_scheme(scheme, text)
    _check_place(text)
    if re.search(r"\s", text):
        raise UsageError(f"{redact_url(text)!r} holds a blank, which no address may have; remove it, or write it as %20")
    address, credentials = split_credentials(scheme + text[len(scheme) :])
    return Identified(_name(address), "rtsp" if scheme in RTSP else "network", address, credentials=credentials)


def _check_scheme(scheme: str, text: str) -> None:
    if scheme not in RTSP + SCHEMES:
        raise UsageError(f"{redact_url(text)!r} is no source that is known; allowed: {ALLOWED}")
    if scheme in SCHEMES and not speaks(scheme):
        raise UsageError(f"{redact_url(text)!r} cannot be read: this FFmpeg was built without {scheme}://; see `doctor`")


def _check_place(text: str) -> None:
    """Check the host, port and credentials of an address.

    :raises UsageError: if the host is malformed, or the password has characters that must be percent-encoded.
    """
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises if it is no number
        host = parts.hostname
    except ValueError:
        host = None
    info, at, _ = text.split("://", 1)[1].rpartition("@")
    if not host or any(c in host for c in "=&;,") or (at and any(c in info for c in "@#?/^ ")):
        raise UsageError(
            f"{redact_url(text)!r} is not a valid address. If the password has special characters, percent-encode the password "
            "(@ is %40, : is %3A, / is %2F, # is %23), or give user and password apart in a `config`"
        )


def _name(address: str) -> str:
    """A stream name from an address: host and path without secrets, since it appears in outputs and in file names."""
    parts = urlsplit(redact_url(address))
    places = (re.sub(rf"[=:]?{re.escape(HIDDEN)}", "", place) for place in parts.path.split("/"))
    name = "-".join([parts.hostname or "", *filter(None, places)])
    return re.sub(r"[^\w.-]+", "-", name).strip("-")[:MAX_NAME] or "stream"
