"""A clip as a camera sends it: each packet comes at its time and is decoded then, again and again.

`Realtime` decodes a file ahead and releases its pictures by their times, so its latency has no decoding. Here decoding counts,
as with a camera. The load is open: each packet comes at its time, even if pictures were dropped or this thread is late.
`arrived_s` is the time at which the packet was due, not the time at which the thread woke: a wait for a core counts as latency.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from pipelines.errors import UsageError
from pipelines.frame import DEFAULT_RATE, Capture
from pipelines.media.local_files import LOCAL, file_address
from pipelines.media.packets import demuxed
from pipelines.media.transparency import decoder_of
from pipelines.sources.decode import PictureDecoder, stream_info
from pipelines.sources.files.file import timeline
from pipelines.sources.files.playlist import check_playlist
from pipelines.sources.make_source import make_source
from pipelines.sources.opening import Timeouts, opened
from pipelines.sources.source import Source
from pipelines.sources.stream_spec import StreamSpec
from pipelines.sources.synthetic import Synthetic, SyntheticSource
from pipelines.watch import Watch


class Player:
    """Plays a file without end, as one session.

    start_s: monotonic seconds at which the first packet is due (None: as soon as the file is open). Streams that begin at
    different moments send at different moments of the period.
    """

    live = True

    def __init__(self, path: Path, *, start_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._start_s = start_s
        self._clock = clock

    def frames(self, stop: threading.Event, watch: Watch) -> Generator[Capture, None, None]:
        check_playlist(self._path)
        with opened(file_address(self._path), stop=stop, limits=Timeouts(), options=LOCAL) as (container, stream):
            info = stream_info(stream)
            decoder = PictureDecoder(
                decoder_of(stream), watch=watch, info=info, timeline=timeline(info, container), clock=self._clock
            )
            start_s = self._clock() if self._start_s is None else self._start_s
            for packet, due_s in _repeated(container, stream):
                if stop.wait(max(start_s + due_s - self._clock(), 0.0)):
                    return
                yield from decoder.captures(packet, start_s + due_s, aspect=stream.sample_aspect_ratio)


def _repeated(container: InputContainer, stream: VideoStream) -> Iterator[tuple[Packet, float]]:
    """The packets of the clip, repeated without end, each with the seconds after the first at which it is due.

    Their dts and pts go on rising from one repetition to the next. It ends only if the clip has no packets.

    The decoder is never flushed: the pictures that it holds at the end of the clip (with B-frames) are left out.
    """
    frame_s = 1 / (stream.average_rate or DEFAULT_RATE)
    # In ticks of the stream's time base: the duration of a packet that has none, the first dts, the dts after the last packet,
    # and the shift that is added to the clip's own times.
    step = round(frame_s / stream.time_base) if stream.time_base else 1
    first: int | None = None
    next_dts = shift = 0
    while True:
        at_start = True
        for packet in demuxed(container, stream):
            if not packet.size:
                continue
            dts = next_dts if packet.dts is None else packet.dts + shift
            if first is None:
                first = dts
            elif at_start:
                shift += next_dts - dts
                dts = next_dts
            at_start = False
            packet.dts = dts
            packet.pts = None if packet.pts is None else packet.pts + shift
            next_dts = max(next_dts, dts + (packet.duration or step))
            yield packet, float((dts - first) * packet.time_base)
        if at_start:
            return
        container.seek(0)


def make_camera(spec: StreamSpec, stop: threading.Event, start_s: float) -> Source:
    """A live source for any stream: a file is played as a camera sends it. start_s: time of its first frame
    (monotonic), unless it is a camera.

    :raises UsageError: if the source cannot be opened several times.
    """
    if spec.kind == "file":
        return Player(Path(spec.address), start_s=start_s)
    if spec.kind == "synthetic":
        return SyntheticSource(Synthetic.parse(spec.address), start_s=start_s)
    if spec.kind == "rtsp":
        return make_source(spec, stop)
    raise UsageError(f"{spec.name!r} cannot be read many times at once; give a clip, rtsp:// or synthetic:WxH@FPS")
