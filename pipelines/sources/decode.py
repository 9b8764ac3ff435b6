"""Packets -> captures: one decoder in one thread gives pictures, and each is marked if it may be corrupt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import av.error
from av.codec.context import Flags, ThreadType
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream

from pipelines.errors import SourceError
from pipelines.frame import Capture, StreamInfo
from pipelines.media import decoder_limits
from pipelines.media.pixels import Pixels
from pipelines.media.transparency import decoder_of
from pipelines.sources.bitstream.inspector import PacketInspector
from pipelines.sources.bitstream.references import NO_VERDICT, PacketVerdict
from pipelines.sources.media_time import Timeline
from pipelines.watch import Watch

REFRESH = 250
"""Number of packets after a fault until pictures count as clean even without a key packet. Streams with intra refresh never
send another key packet; within this number they have refreshed the whole picture."""

NO_FRAME_THREADS = ("hevc",)
"""Decoders without frame threads. In a broken stream one of their threads may wait forever for a missing picture (FFmpeg 8.1
with output_corrupt), and nothing can interrupt it. Threads for slices of a picture are safe."""


@dataclass(slots=True)
class _Fault:
    """One damaged range of packets. Packets are numbered in decoding order."""

    first: int
    """The first damaged packet."""
    healed: int | None = None
    """The clean key packet that ends the damage; None: not seen yet."""
    healed_pts: int | None = None
    """Presentation time of `healed`. Pictures before it are corrupt even if they are decoded later."""
    over: int | None = None
    """A later key packet with an earlier time: the clock has restarted there, so `healed_pts` no longer applies."""


class CorruptionTracker:
    """Decides for each picture whether it may be corrupt, from the damage of the packets before it.

    Every picture after a refused or flagged packet may be corrupt, until the next clean key packet, whether the decoder
    flags it or not. The order is that of presentation: pictures that are shown before the key picture but decoded after it
    (an open group of pictures) depend on damaged pictures, too. The start counts as damaged: no picture before the first key
    packet is clean. The packet after a flagged one counts as damaged as well, because FFmpeg flags the packet before a loss
    if a parser splits the stream into packets, as in transport streams.
    """

    def __init__(self) -> None:
        self._faults = [_Fault(0)]
        self._flagged = False
        self._key: tuple[int, int] | None = None
        """Number and presentation time of the last key packet; None if there was none or it has no time."""

    def packet(self, index: int, packet: Packet, seen: PacketVerdict = NO_VERDICT, *, gap: bool = False) -> None:
        """Record a packet before it is decoded.

        index: its number in decoding order. seen: the result of reading its headers. gap: packets before it are missing.
        """
        if gap or seen.missing:
            # Before the check for a key packet: a key packet after a gap is clean, pictures shown before it are not.
            self.damaged(index, packet.pts)
        flagged, self._flagged = self._flagged, packet.is_corrupt
        if flagged or packet.is_corrupt:
            self.damaged(index, packet.pts)
        elif seen.renewed is not None:
            self._heal(index, packet.pts, since=index - seen.renewed)
        elif packet.is_keyframe and seen.key:
            self._heal(index, packet.pts, since=index)

    def _heal(self, index: int, pts: int | None, since: int) -> None:
        """End the faults that began at packet `since` or before: from packet `index` on the picture is clean."""
        for fault in self._faults:
            if fault.healed is None and fault.first <= since:
                fault.healed, fault.healed_pts = index, pts
            elif pts is not None and fault.healed_pts is not None and fault.over is None and pts < fault.healed_pts:
                fault.over = index
        if since == index:
            self._key = None if pts is None else (index, pts)

    def damaged(self, index: int, pts: int | None = None) -> None:
        """Record that packet `index` is damaged: it could not be decoded, is flagged, or is incomplete.

        pts: its presentation time; None: unknown. A packet that follows the last key packet but is shown before it does not
        damage pictures that are shown after it.
        """
        last = self._faults[-1] if self._faults else None
        if self._key is not None and pts is not None and pts < self._key[1]:
            if last is None or last.healed != self._key[0]:
                self._faults.append(_Fault(index, *self._key))
        elif last is None or last.healed is not None:
            self._faults.append(_Fault(index))

    def corrupt(self, index: int, pts: int | None) -> bool:
        """Whether the picture that was decoded from packet `index`, with presentation time `pts`, may be corrupt."""
        self._faults = [f for f in self._faults if index - (f.healed if f.healed is not None else f.first) < REFRESH]
        return any(self._touched(f, index, pts) for f in self._faults)

    @staticmethod
    def _touched(fault: _Fault, index: int, pts: int | None) -> bool:
        if index < fault.first or (fault.over is not None and index >= fault.over):
            return False
        if fault.healed is None or index < fault.healed:
            return True
        return pts is not None and fault.healed_pts is not None and pts < fault.healed_pts


class PictureDecoder:
    """Decodes packets of one stream to captures: pictures with the arrival time of their packet and a corruption mark.

    Thread: the source's.
    """

    def __init__(
        self,
        context: VideoCodecContext,
        *,
        watch: Watch,
        info: StreamInfo,
        timeline: Timeline,
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """threads: of the decoder. Use 1 for live streams: frame threads delay each picture by several packets, and no time
        stamp shows it."""
        frame_threads = threads > 1 and context.name not in NO_FRAME_THREADS
        context.thread_type = ThreadType.AUTO if frame_threads else ThreadType.SLICE
        context.thread_count = threads
        context.copy_opaque = True
        context.options = {**context.options, **decoder_limits.pixels(decoder_limits.VIDEO_PIXELS)}
        # Pictures before the first key packet are returned, too, as corrupt: a camera with a long group of pictures may send
        # its next key picture only after the read timeout, and these pictures show that it is alive.
        context.flags |= Flags.output_corrupt
        self.last_s = clock()
        """Time (monotonic) of the last decoded picture; of the construction before the first."""
        self._context = context
        self._watch = watch
        self._info = info
        self._timeline = timeline
        self._clock = clock
        self._inspector = PacketInspector(context)
        self._corruption = CorruptionTracker()
        self._pixels = Pixels(steady=True)
        self._index = self._newest = -1

    def captures(
        self,
        packet: Packet,
        arrived_s: float,
        *,
        damaged: bool = False,
        gap: bool = False,
        aspect: Fraction | None = None,
        captured_s: float | None = None,
    ) -> Iterator[Capture]:
        """Decode one packet: zero or more captures. An empty packet at the end of the stream flushes the decoder.

        arrived_s: time (monotonic) at which the packet was read. damaged: some of the packet is missing, or may be.
        gap: packets before it are missing. aspect: of a sample, if the container states it; None: the codec's.
        captured_s: see `Capture`. Errors of the decoder are reported to the watch and not raised.
        """
        self._index += 1
        packet.opaque = (self._index, captured_s)
        self._corruption.packet(self._index, packet, self._inspector.at(packet), gap=gap)
        if damaged:
            self._corruption.damaged(self._index, packet.pts)
        for frame in self._decode(packet):
            assert isinstance(frame, av.VideoFrame)
            made_by, captured_s = frame.opaque if isinstance(frame.opaque, tuple) else (self._index, None)
            corrupt = self._corruption.corrupt(made_by, frame.pts)
            if frame.is_corrupt and not corrupt:
                corrupt = True
                self._corruption.damaged(made_by, frame.pts)
            # A clock can restart only with a new packet: a picture of an older packet is late.
            late = corrupt or made_by < self._newest
            self._newest = max(self._newest, made_by)
            picture = self._pixels.picture(frame, aspect or self._context.sample_aspect_ratio)
            self.last_s = self._clock()
            pts_s = self._timeline.seconds(frame.pts, frame.dts, late=late)
            yield Capture(
                picture,
                pts_s,
                arrived_s,
                self.last_s,
                self._info,
                corrupt,
                interlaced=frame.interlaced_frame,
                captured_s=captured_s,
            )

    def _decode(self, packet: Packet) -> list[Any]:
        """The decoder's frames; none, and a decode error, if it refuses the packet."""
        try:
            return self._context.decode(packet)
        except av.error.DecoderNotFoundError:
            raise
        except av.error.FFmpegError as error:
            # Any error: invalid data, out of memory (see `decoder_limits`), not implemented, a bug of FFmpeg.
            self._corruption.damaged(self._index)
            self._watch.decode_error(f"a packet could not be decoded ({error.strerror})")
            return []


def decoded(
    packets: Iterable[Packet],
    stream: VideoStream,
    *,
    stop: threading.Event,
    watch: Watch,
    info: StreamInfo,
    timeline: Timeline,
    threads: int = 1,
    silence_s: float | None = None,
    gaps: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Capture]:
    """Decode a stream's packets to captures. If the iterator of packets raises, the decoder is flushed before the error
    is raised.

    packets: if `silence_s` is given, those of all streams of the container: else a stream that only sends sound would block.
    silence_s: seconds without a picture after which the stream counts as broken, even if it sends other packets.
    gaps: called after each packet; whether the transport has lost a part of it, or something before it.
    threads: of the decoder. stop: ends the iteration at the next packet.

    :raises SourceError: if there is no picture for `silence_s`.
    """
    decoder = PictureDecoder(decoder_of(stream), watch=watch, info=info, timeline=timeline, threads=threads, clock=clock)
    asked_s = clock()
    for packet in _with_flush(packets, stream):
        if stop.is_set():
            return
        arrived_s = clock()
        if silence_s is not None and arrived_s - asked_s >= silence_s:
            # The read has timed out: the demuxer only gives out a packet that it had held back, which is old and incomplete.
            raise SourceError(f"nothing came within {silence_s:g} s (the read timeout)")
        # Not packet.stream_index: that is 0 for the empty packet that flushes the decoder, in every stream.
        if packet.stream.index == stream.index:
            yield from decoder.captures(packet, arrived_s, damaged=gaps(), aspect=stream.sample_aspect_ratio)
        asked_s = clock()
        if silence_s is not None and asked_s - decoder.last_s > silence_s:
            raise SourceError(f"no picture for {silence_s:g} s (the read timeout)")


def _with_flush(packets: Iterable[Packet], stream: VideoStream) -> Iterator[Packet]:
    """The packets, then an empty one that flushes the decoder, even if the iterator of packets raises."""
    packet: Packet | None = None
    try:
        for packet in packets:
            yield packet
    except (av.error.FFmpegError, OSError):
        yield _empty(stream)
        raise
    if packet is not None and packet.size:
        yield _empty(stream)


def _empty(stream: VideoStream) -> Packet:
    packet = Packet()
    packet.stream = stream
    return packet


def stream_info(stream: VideoStream, sound: str | None = None) -> StreamInfo:
    """The stream's properties as the container states them. sound: address of the file with its sound, if there is one."""
    rate = stream.average_rate or stream.guessed_rate
    if rate and stream.guessed_rate and stream.container.format.name == "avi":
        rate = min(rate, stream.guessed_rate)  # an AVI header may count fields or empty packets
    duration_s = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None
    return StreamInfo(
        time_base=Fraction(stream.time_base) if stream.time_base else None,
        rate=Fraction(rate) if rate else None,
        frames=stream.frames or (round(duration_s * rate) if duration_s and rate else None),
        duration_s=duration_s,
        sound=sound,
    )
