"""One SOURCE as text -> a stream's spec, with its credentials apart; and the forms that addresses have.

Imports nothing heavy, so that the command line can use it before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pipelines.errors import SourceError, UsageError
from pipelines.redact import HIDDEN, redact_url
from pipelines.stream_spec import Credentials, StreamOptions, StreamSpec

RTSP = ("rtsp", "rtsps")
SCHEMES = ("http", "https", "tcp", "udp", "rtmp", "srt")
"""Other schemes, all read by FFmpeg."""
ALLOWED = (
    f"a file, a quoted glob, a folder, {'://, '.join(RTSP + SCHEMES)}:// (each where FFmpeg has it: see watchline doctor), "
    "a device number, /dev/videoN, a .streams or .txt list, or synthetic:WxH@FPS"
)
MAX_NAME = 60
"""Characters of a name that is made from an address."""

_SLIP = re.compile(rf"(?is)[^\w/.]*({'|'.join(RTSP + SCHEMES)})\s*(?:[:;]\s*[/\\]*|[/\\]{{2,}})\s*(.*)")
_NO_SCHEME = re.compile(r"(?s)[^\w/.]*([^\s/:@]+\s*:.*@.*)")
_AROUND = " \t\r\n\"'<>"


def mistyped(text: str) -> str | None:
    """What was probably meant, if a text that is no address looks like one: a blank before it, `rtsp:/`, `rtsp//`, or
    `user:password@host`. None if it does not."""
    slip = _SLIP.fullmatch(text)
    if slip:
        return f"{slip[1].lower()}://{slip[2].strip(_AROUND)}"
    bare = _NO_SCHEME.fullmatch(text)
    return f"rtsp://{bare[1].strip(_AROUND)}" if bare else None


def spec_of(text: str, name: str | None = None, options: StreamOptions | None = None) -> StreamSpec:
    """The stream that a SOURCE means: a device number, /dev/videoN, synthetic:WxH@FPS, a URL, or the path of a file.

    name: None takes one from the source. User and password of a URL become the spec's credentials.

    :raises UsageError: if it is none of these.
    """
    found = _spec(text)
    return StreamSpec(
        name or found.name,
        found.kind,
        found.address,
        found.pictures,
        found.credentials,
        options=options or StreamOptions(),
    )


def _spec(text: str) -> StreamSpec:
    if not text.strip():
        raise UsageError("a source is empty; name one, or leave it out (is a variable not set?)")
    if re.fullmatch(r"\d+", text):
        return StreamSpec(f"video{int(text)}", "device", f"/dev/video{int(text)}")
    if re.fullmatch(r"/dev/video\d+", text):
        return StreamSpec(Path(text).name, "device", text)
    if text.startswith("synthetic:"):
        from pipelines.sources.synthetic import Synthetic

        Synthetic.parse(text)
        return StreamSpec(text.replace(":", "-"), "synthetic", text)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return _url(text)
    check_typing(text, Path(text))
    return file_spec(text)


def check_typing(text: str, path: Path) -> None:
    """:raises UsageError: if the text is no file that exists but looks like an address with a slip; with the right form."""
    meant = None if path.exists() else mistyped(text)
    if meant is not None:
        raise UsageError(f"{redact_url(text)!r} is neither a file that exists nor a valid address; write {redact_url(meant)!r}")


def file_spec(text: str) -> StreamSpec:
    """A picture file is a stream of one picture, any other file a video. Opens it to tell an animation from a picture."""
    from pipelines.sources.files.images import SUFFIXES, animated

    path = Path(text)
    if path.suffix.lower() in SUFFIXES and not animated(path):
        return StreamSpec(path.stem, "images", text, (path,))
    return StreamSpec(path.stem or path.name, "file", text)


def _url(text: str) -> StreamSpec:
    """:raises UsageError: if the URL is malformed, or FFmpeg cannot read its scheme."""
    _check_url(text)
    scheme, _, rest = text.partition("://")
    address, credentials = f"{scheme.lower()}://{rest}", None
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login, at, _ = place.rpartition("@")
    if at:
        user, _, password = login.partition(":")
        credentials = Credentials(unquote(user), unquote(password))
        address = f"{scheme.lower()}://{rest[len(login) + 1 :]}"
    # A name stands in every output, and in names of files.
    parts = urlsplit(redact_url(address)).path.split("/")
    host = urlsplit(text).hostname or ""
    name = "-".join([host, *filter(None, (re.sub(rf"[=:]?{re.escape(HIDDEN)}", "", p) for p in parts))])
    kind = "rtsp" if scheme.lower() in RTSP else "network"
    return StreamSpec(_as_name(name), kind, address, credentials=credentials)  # type: ignore[arg-type]


def _check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises if it is no number
        host = parts.hostname
    except ValueError:
        host = None
    scheme = text.split("://")[0].lower()
    if scheme not in RTSP + SCHEMES:
        raise UsageError(f"{redact_url(text)!r} is no source that is known; allowed: {ALLOWED}")
    if scheme in SCHEMES and not _speaks(scheme):
        raise UsageError(
            f"{redact_url(text)!r} cannot be read: this FFmpeg was built without {scheme}://; see watchline doctor"
        )
    user, at, _ = text.split("://", 1)[1].rpartition("@")
    if not host or any(c in host for c in "=&;,") or (at and any(c in user for c in "@#?/^ ")):
        raise UsageError(
            f"{redact_url(text)!r} is not a valid address. If the password has special characters, percent-encode the password "
            "(@ is %40, : is %3A, / is %2F, # is %23), or give user and password apart in a --config"
        )
    if re.search(r"\s", text):
        raise UsageError(f"{redact_url(text)!r} holds a blank, which no address has; take it away, or write %20 for it")


def _speaks(scheme: str) -> bool:
    from pipelines.sources.network import speaks

    return speaks(scheme)


def _as_name(text: str) -> str:
    """A name that is safe in names of files."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")[:MAX_NAME] or "stream"


def with_credentials(address: str, credentials: Credentials | None) -> str:
    """The address as FFmpeg must get it. Only for the moment at which it is opened: the result is never kept or shown."""
    if credentials is None:
        return address
    scheme, _, rest = address.partition("://")
    login = quote(credentials.user, safe="") + (f":{quote(credentials.password, safe='')}" if credentials.password else "")
    return f"{scheme}://{login}@{rest}"


def about(name: str, error: SourceError) -> SourceError:
    """The same error, with what it is about before it."""
    error.args = (f"{name}: {error}",)
    return error
