"""Cameras over RTSP, read with FFmpeg: for what the native client does not speak.

Its demuxer hands a picture out when the next one begins: one frame period that no clock in here can see. The options
keep it from adding more. They were tried one by one on a 720p 25 fps camera, age of the decoded picture, p50 / p99 in ms:
defaults 127 / 221; without probing, buffering and frame threads 45 / 47.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
from collections.abc import Generator, Iterator, Sequence

import av.logging

from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.media.packets import demuxed
from pipelines.redact import redact_url
from pipelines.sources.decode import decoded, stream_info
from pipelines.sources.media_time import Timeline
from pipelines.sources.opening import opened
from pipelines.sources.rtsp.dial import UNVERIFIED
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.watch import Watch

LOST = ("missed", "RTP: dropping")
"""Words of FFmpeg's log line about packets that never came: the only place where it says so."""
TLS = "tls"
"""Where a line comes from that speaks of a certificate: the error itself is an "Input/output error" only."""


class FfmpegRtsp:
    """One session with a camera; it ends with SourceError when the camera goes away or shows nothing for the read limit."""

    live = True

    def __init__(self, url: str, options: RtspOptions) -> None:
        self._url = url
        self._options = options

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        limits = self._options.limits
        options = {
            "rtsp_transport": self._options.transport,
            # Without nobuffer, which throws away what was read while probing: the first key picture, when the camera
            # begins with one. Nothing is probed for, so that nothing waits in that buffer.
            "analyzeduration": "0",
            "probesize": "32",
            # Reordering would hold back each packet for a while; a late one is a lost one.
            "reorder_queue_size": "0",
            "max_delay": "0",
            # Of each wait on the socket; the limits themselves are kept by the calls that open and read.
            "timeout": str(int(1e6 * max(limits.open_s, limits.read_s))),
            **_tls_options(verify=self._options.tls_verify),
        }
        # The sound is set up too, and passed over: GStreamer's server sends nothing of a shared camera, for good, to a
        # client that leaves one of its tracks out.
        _listen_for_losses()
        credentials = self._options.credentials
        with (
            av.logging.Capture(local=True) as lines,
            _certificate_explained(redact_url(self._url), lines),
            opened(self._url, stop=stop, limits=limits, options=options, credentials=credentials) as (container, stream),
        ):
            info = stream_info(stream)

            def gaps() -> bool:
                lost = any(word in line for _, _, line in lines for word in LOST)
                lines.clear()
                return lost

            yield from decoded(
                demuxed(container),
                stream,
                stop=stop,
                watch=watch,
                info=info,
                gaps=gaps,
                timeline=Timeline(info, leaps=False),
                silence_s=limits.read_s,
            )
        if not stop.is_set():
            raise SourceError(f"{redact_url(self._url)}: the camera ended the stream")


def _tls_options(*, verify: bool) -> dict[str, str]:
    """FFmpeg checks nothing by itself. Which authorities it would ask depends on how it was built: here those of Python."""
    paths = ssl.get_default_verify_paths()
    authorities = {"ca_file": paths.cafile} if paths.cafile else {}
    return {"tls_verify": "1", **authorities} if verify else {"tls_verify": "0"}


@contextlib.contextmanager
def _certificate_explained(name: str, lines: Sequence[tuple[int, str, str]]) -> Iterator[None]:
    """:raises SourceError: permanent, in place of any other, if FFmpeg's log says that a certificate does not hold."""
    try:
        yield
    except SourceError:
        if any(part == TLS and "certificate" in line.lower() for _, part, line in lines):
            raise SourceError(f"{name}: the server's certificate does not hold; {UNVERIFIED}", permanent=True) from None
        raise


def _listen_for_losses() -> None:
    """FFmpeg's lines come only while some level is set; outside of a capture they go nowhere."""
    logger = logging.getLogger("libav")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        av.logging.set_skip_repeated(False)
        av.logging.set_level(av.logging.WARNING)
