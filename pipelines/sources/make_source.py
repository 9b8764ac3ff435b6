"""From a stream's spec to its source: the only place that names concrete sources. A new kind is one file and one line here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from pipelines.choices import SourceKind
from pipelines.errors import SourceError
from pipelines.sources.files.file import FileSource
from pipelines.sources.files.images import ImagesSource
from pipelines.sources.network import FailedSession, NetworkSource, has_end
from pipelines.sources.opening import Timeouts
from pipelines.sources.rtsp.rtsp_options import RtspOptions
from pipelines.sources.rtsp.rtsp_source import RtspSource
from pipelines.sources.source import Source
from pipelines.sources.stream_spec import StreamSpec
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.sources.webcam import WebcamSource
from pipelines.sources.wrappers.interlace import Interlace
from pipelines.sources.wrappers.pace import Loop, Realtime
from pipelines.sources.wrappers.reconnect import Reconnect

SourceMaker = Callable[[StreamSpec, threading.Event, int], Source]
"""Makes the source of one kind: spec, stop, decoder threads."""


def make_source(spec: StreamSpec, stop: threading.Event, *, threads: int = 1) -> Source:
    """The source of a stream, with the wrappers that its options ask for: pacing, looping, reconnecting, deinterlacing.

    Opens nothing, except to see whether an address over HTTP offers a file; `stop` ends that. threads: of a file's decoder.
    """
    return Interlace(KINDS[spec.kind](spec, stop, threads), deinterlace=spec.options.deinterlace)


def _file(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    return _paced(FileSource(Path(spec.address), threads=threads, limits=_timeouts(spec)), spec)


def _images(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    return _paced(ImagesSource(spec.pictures), spec)


def _synthetic(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    return SyntheticSource(Synthetic.parse(spec.address))


def _rtsp(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    options = spec.options
    camera = RtspOptions(
        options.rtsp_client,
        options.rtsp_transport,
        _timeouts(spec),
        tls_verify=options.tls_verify,
        clock_trusted=options.camera_clock_trusted,
        credentials=spec.credentials,
    )
    return _reconnected(spec, lambda: RtspSource(spec.address, camera))


def _device(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    return _reconnected(spec, lambda: WebcamSource(Path(spec.address), limits=_timeouts(spec)))


def _network(spec: StreamSpec, stop: threading.Event, threads: int) -> Source:
    """A file or a live stream over HTTP, which is known only after it is opened; a live stream over any other protocol."""
    limits, login = _timeouts(spec), spec.credentials
    failed: list[SourceError] = []
    if spec.address.startswith("http"):
        try:
            if has_end(spec.address, limits, stop, login):
                return _paced(NetworkSource(spec.address, live=False, limits=limits, threads=threads, login=login), spec)
        except SourceError as error:
            failed.append(error)

    def session() -> Source:
        # The first attempt has already been made by `has_end`, and has failed.
        return FailedSession(failed.pop()) if failed else NetworkSource(spec.address, live=True, limits=limits, login=login)

    return _reconnected(spec, session)


KINDS: Mapping[SourceKind, SourceMaker] = {
    "file": _file,
    "images": _images,
    "rtsp": _rtsp,
    "network": _network,
    "device": _device,
    "synthetic": _synthetic,
}


def _timeouts(spec: StreamSpec) -> Timeouts:
    return Timeouts(spec.options.open_timeout_s, spec.options.read_timeout_s)


def _paced(source: Source, spec: StreamSpec) -> Source:
    looped = Loop(source) if spec.options.loop else source
    return Realtime(looped) if spec.options.realtime else looped


def _reconnected(spec: StreamSpec, session: Callable[[], Source]) -> Source:
    return Reconnect(session) if spec.options.reconnect else session()
