"""Video from the network by other protocols than RTSP: files and live streams (MJPEG cameras, HLS, transport streams) over
HTTP(S); live streams over TCP, UDP, RTMP and SRT."""

from __future__ import annotations

import threading
from collections.abc import Generator

import av
import av.error

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.media.packets import demuxed
from pipelines.redact import redact_url
from pipelines.sources.address import SCHEMES
from pipelines.sources.decode import decoded, stream_info
from pipelines.sources.files.file import timeline
from pipelines.sources.opening import Timeouts, opened
from pipelines.watch import Watch

REMOTE = {"protocol_whitelist": ",".join((*SCHEMES, "tls", "crypto"))}
"""FFmpeg's option for addresses: a remote playlist cannot open local files."""


def speaks(scheme: str) -> bool:
    """Whether this FFmpeg was built with the protocol of a scheme. (PyAV's wheels have no SRT.)

    PyAV has no list of protocols. FFmpeg refuses a known one by the empty whitelist before it opens anything.
    """
    try:
        av.open(f"{scheme}://127.0.0.1:9/", options={"protocol_whitelist": "none"})
    except av.error.ProtocolNotFoundError:
        return False
    except (av.error.FFmpegError, OSError):
        return True
    return True


def has_end(url: str, limits: Timeouts, stop: threading.Event, login: Credentials | None = None) -> bool:
    """Whether an HTTP address is a file: its length is known, or it is a complete playlist. Blocks while it is opened.

    :raises SourceError: if it cannot be opened. For a live source this counts as the first attempt (`FailedSession`).
    """
    with opened(url, stop=stop, limits=limits, options=REMOTE, credentials=login) as (container, _):
        if "hls" in container.format.name:
            return container.duration is not None
        return container.size > 0


class FailedSession:
    """A session of a live source that raises the error with which opening it has failed already."""

    live = True

    def __init__(self, error: SourceError) -> None:
        self._error = error

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        raise self._error
        yield


class NetworkSource:
    """One session with an address that is not RTSP.

    `frames` of a live stream raises SourceError if the server ends the stream; that of a file returns at its end.
    """

    def __init__(
        self,
        url: str,
        *,
        live: bool,
        limits: Timeouts | None = None,
        threads: int = 1,
        login: Credentials | None = None,
    ) -> None:
        """threads: decoder threads of a file; a live stream has one."""
        self.live = live
        self._url = url
        self._login = login
        self._limits = limits or Timeouts()
        self._threads = 1 if live else threads

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        options = dict(REMOTE)
        if self.live:
            # Probe only until the picture size is known: packets that are read while probing are old when they are decoded.
            options |= {"fflags": "nobuffer", "analyzeduration": "1000000"}
        found = opened(self._url, stop=stop, limits=self._limits, options=options, credentials=self._login)
        with found as (container, stream):
            info = stream_info(stream)
            packets = demuxed(container) if self.live else demuxed(container, stream)
            yield from decoded(
                packets,
                stream,
                stop=stop,
                watch=watch,
                info=info,
                threads=self._threads,
                timeline=timeline(info, container),
                silence_s=self._limits.read_s if self.live else None,
            )
        if self.live and not stop.is_set():
            raise SourceError(f"{redact_url(self._url)}: the server ended the stream")
