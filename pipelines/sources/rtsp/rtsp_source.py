"""Cameras over RTSP, read by the native client, or by FFmpeg if the native client does not support the stream."""

from __future__ import annotations

import threading
from collections.abc import Generator

from pipelines.errors import SourceError
from pipelines.frame import Capture
from pipelines.sources.rtsp.ffmpeg_reader import FfmpegRtsp
from pipelines.sources.rtsp.native_reader import NativeRtsp
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.sdp import Unsupported
from pipelines.watch import Watch


class RtspSource:
    """One session with a camera, by the client that the options choose.

    It ends with SourceError if the camera disconnects or sends no picture within the read timeout.
    """

    live = True

    def __init__(self, url: str, options: RtspOptions | None = None) -> None:
        self._url = url
        self._options = options or RtspOptions()

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        client = self._options.client
        if client != "ffmpeg":
            try:
                yield from NativeRtsp(self._url, self._options).frames(stop, watch)
                return
            except Unsupported as reason:
                if client == "native":
                    message = f"{reason}; `rtsp_client` auto reads such streams with FFmpeg"
                    raise SourceError(message, permanent=True) from None
                watch.once("rtsp client", f"{reason}; read with FFmpeg, which shows each picture one frame period later")
        yield from FfmpegRtsp(self._url, self._options).frames(stop, watch)
