"""Opening and reading sources with FFmpeg: timeouts, stops, and messages that a person understands."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import av
import av.error
from av.container import InputContainer
from av.video.stream import VideoStream

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.media import decoder_limits, patches
from pipelines.media.interrupt import interruptible
from pipelines.media.tracks import watched_video
from pipelines.redact import redact_url
from pipelines.sources.address import PICTURE_SUFFIXES, SCHEMES, about, with_credentials
from pipelines.sources.resolver import addresses

REFUSED = {
    401: "401: user or password is missing or wrong",
    403: "403: access is forbidden for this user",
    404: "404: there is no such stream on that server",
}
"""Status codes of HTTP and RTSP for which no retry can succeed."""
PERMANENT: dict[type[Exception], str] = {
    av.error.HTTPUnauthorizedError: REFUSED[401],
    av.error.HTTPForbiddenError: REFUSED[403],
    av.error.HTTPNotFoundError: REFUSED[404],
    av.error.ProtocolNotFoundError: "the protocol is unknown or not allowed here",
    av.error.DemuxerNotFoundError: "the format is unknown",
}
REMOTE_HINT = f"; it may lead to other addresses by {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}, never to files"
DENIED = (av.error.HTTPUnauthorizedError, av.error.HTTPForbiddenError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits in seconds for opening a source and for waiting for its next picture."""

    open_s: float = 10.0
    read_s: float = 5.0


@contextlib.contextmanager
def opened(
    address: str,
    *,
    stop: threading.Event,
    limits: Timeouts,
    options: Mapping[str, str] | None = None,
    format: str | None = None,
    file: Any = None,
    credentials: Credentials | None = None,
    most_pixels: int = decoder_limits.VIDEO_PIXELS,
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open an address with FFmpeg and choose its video stream; both are closed, in this thread, when the `with` ends.

    address: of the network, a device, or `file:PATH`, without credentials. file: an open binary file to read instead.
    options, format: FFmpeg's. stop: ends blocking calls; an error of FFmpeg inside the `with` is then
    ignored. most_pixels: of a picture.

    :raises SourceError: if it cannot be opened or read, has no video, or has larger pictures than `most_pixels`.
    """
    patches.install()
    name = redact_url(address.removeprefix("file:"))
    target = file if file is not None else with_credentials(address, credentials)
    with interruptible(stop):
        container = _open(address, target, limits, format, {**decoder_limits.pixels(most_pixels), **(options or {})})
        try:
            stream = _watched(container, name)
            _check_size(stream, name, most_pixels)
            yield container, stream
        except (av.error.FFmpegError, OSError) as error:
            if stop.is_set():
                return
            raise _broken_off(name, error, limits.read_s, remote=_is_remote(address)) from None
        finally:
            _close(container)


def _open(address: str, target: Any, limits: Timeouts, format: str | None, options: dict[str, str]) -> InputContainer:
    """Open `target`, an address with its credentials or a binary file, with FFmpeg.

    address: without credentials, for the look-up of its host and for messages.

    :raises SourceError: if it cannot be opened.
    """
    name, remote = redact_url(address.removeprefix("file:")), _is_remote(address)
    began_s = time.monotonic()
    try:
        if remote:
            # FFmpeg's own error does not tell an unknown host from other failures.
            addresses(urlsplit(address).hostname, None)
        return av.open(
            target, format=format, options=options, timeout=(limits.open_s, limits.read_s), metadata_errors="replace"
        )
    except SourceError as error:
        raise about(name, error) from None
    except (OSError, av.error.FFmpegError, ValueError) as error:
        # An open that its timeout interrupted also raises InvalidDataError.
        late = time.monotonic() - began_s >= limits.open_s
        raise _explained(name, error, f"{limits.open_s:g} s (the open timeout)", late=late, remote=remote) from None


def _is_remote(address: str) -> bool:
    return "://" in address


def _close(container: InputContainer) -> None:
    """Close a container without a deadlock.

    PyAV frees a decoder with the interpreter's lock (GIL) held. FFmpeg then waits for its frame threads, and one of them may
    need the lock to log a line. The flush waits for these threads without holding the lock.
    """
    for stream in container.streams.video:
        if stream.codec_context is not None and stream.codec_context.is_open:
            stream.codec_context.flush_buffers()
    container.close()


def _watched(container: InputContainer, name: str) -> VideoStream:
    """The video stream to read.

    :raises SourceError: if the container has none.
    """
    stream = watched_video(container)
    if stream is None:
        raise SourceError(f"no video stream in {name}; a video or picture is needed", permanent=True)
    return stream


def _check_size(stream: VideoStream, name: str, most_pixels: int) -> None:
    """Check the picture size that the container announces; if it announces none, the decoder refuses each large picture.

    :raises SourceError: if its pictures are too large.
    """
    width, height = stream.width or 0, stream.height or 0
    if width * height > most_pixels:
        problem = f"its pictures have {width}x{height} pixels; at most {most_pixels} are read"
        raise SourceError(f"cannot read {name}: {problem}", permanent=True)


def _explained(name: str, error: Exception, limit: str, *, late: bool, remote: bool) -> SourceError:
    """One line about an error of FFmpeg. FFmpeg's own text is not used: it contains the address with its password.

    limit: words for the time limit, if the error is a timeout. late: the time limit has passed. remote: not a local file.
    """
    if late or isinstance(error, av.error.ExitError | av.error.TimeoutError | TimeoutError):
        return SourceError(f"{name}: nothing came within {limit}")
    for kind, text in PERMANENT.items():
        if isinstance(error, kind):
            return SourceError(f"{name}: {text}", permanent=True, denied=isinstance(error, DENIED))
    reason = getattr(error, "strerror", None) or type(error).__name__
    if isinstance(error, av.error.InvalidDataError | av.error.EOFError | ValueError):
        missing = "no picture" if name.lower().endswith(PICTURE_SUFFIXES) else "no video"
        return SourceError(
            f"cannot read {name}: {missing} that can be decoded{REMOTE_HINT if remote else ''}", permanent=not remote
        )
    if isinstance(error, MemoryError):
        problem = f"it asks for more memory than any picture needs ({decoder_limits.BLOCK >> 20} MiB in one piece)"
        return SourceError(f"cannot read {name}: {problem}", permanent=True)
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
        return SourceError(f"cannot read {name}: {reason}", permanent=not remote)
    return SourceError(f"{name}: {reason}")


def _broken_off(name: str, error: Exception, limit_s: float, *, remote: bool) -> SourceError:
    """One line about an error after opening. (A damaged length field makes FFmpeg ask for more memory than there is.)"""
    if not remote and isinstance(error, av.error.InvalidDataError | av.error.MemoryError):
        return SourceError(f"{name} is damaged: the rest of it cannot be read")
    return _explained(name, error, f"{limit_s:g} s (the read timeout)", late=False, remote=remote)
