"""Reads cameras over RTSP with FFmpeg, for streams that the native client does not support.

FFmpeg's demuxer returns a picture when the next one begins: one frame period of latency that Watchline's clocks cannot
measure. The options below avoid further latency. Each was tried on a 720p 25 fps camera. Age of the decoded picture,
p50 / p99: defaults 127 / 221 ms; without probing, buffering and frame threads 45 / 47 ms.
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
"""Words of FFmpeg's log lines about lost packets. FFmpeg reports losses only in its log."""
TLS = "tls"
"""Component of FFmpeg's log lines about certificates. The error itself is only an "Input/output error"."""


class FfmpegRtsp:
    """One session with a camera, read by FFmpeg.

    It ends with SourceError if the camera disconnects or sends no picture within the read timeout.

    :param url: rtsp or rtsps, without credentials unless they are its own.
    """

    live = True

    def __init__(self, url: str, options: RtspOptions) -> None:
        self._url = url
        self._options = options

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        limits = self._options.limits
        options = {
            "rtsp_transport": self._options.transport,
            # Not nobuffer: it drops the packets that were read for probing, so also a key picture at the start.
            # Without probing no packet waits in that buffer.
            "analyzeduration": "0",
            "probesize": "32",
            # Reordering would delay every packet; here a late packet counts as lost.
            "reorder_queue_size": "0",
            "max_delay": "0",
            # Limit of each wait on the socket, µs. The calls that open and read enforce the timeouts themselves.
            "timeout": str(int(1e6 * max(limits.open_s, limits.read_s))),
            **_tls_options(verify=self._options.tls_verify),
        }
        # The sound is set up too, and ignored: GStreamer's server never sends a packet of a shared camera to a client that
        # leaves out one of its tracks.
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
    """FFmpeg's TLS options. Its default is no check, and its authorities depend on the build, so Python's are named."""
    paths = ssl.get_default_verify_paths()
    authorities = {"ca_file": paths.cafile} if paths.cafile else {}
    return {"tls_verify": "1", **authorities} if verify else {"tls_verify": "0"}


@contextlib.contextmanager
def _certificate_explained(name: str, lines: Sequence[tuple[int, str, str]]) -> Iterator[None]:
    """Replaces a SourceError by a permanent one about the certificate, if FFmpeg's log names that cause.

    :param name: of the camera, for people.
    :param lines: FFmpeg's log: level, component, text.
    :raises SourceError: as above.
    """
    try:
        yield
    except SourceError:
        if any(part == TLS and "certificate" in line.lower() for _, part, line in lines):
            raise SourceError(f"{name}: the server's certificate does not hold; {UNVERIFIED}", permanent=True) from None
        raise


def _listen_for_losses() -> None:
    """Turn on FFmpeg's log, which is off unless a level is set. Outside of a capture its lines are dropped."""
    logger = logging.getLogger("libav")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        av.logging.set_skip_repeated(False)
        av.logging.set_level(av.logging.WARNING)
