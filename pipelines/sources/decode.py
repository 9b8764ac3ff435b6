"""Packets -> captures: one decoder in one thread, its pictures as planes, and which of them cannot be trusted."""

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
"""Packets after a fault after which pictures count as clean without a key packet: streams with intra refresh never send
another one, and have renewed the whole picture by then."""


NO_FRAME_THREADS = ("hevc",)
"""Decoders of which a thread waits for ever for a picture that a broken stream never gives (FFmpeg 8.1, with output_corrupt).
Nothing can interrupt that. Threads for the rows of a picture they may have."""


@dataclass(slots=True)
class _Fault:
    """Packets from `first` on are damaged, until the clean key packet `healed` with presentation time `healed_pts`. From
    packet `over` on, a later key packet with an earlier time, times are those of a clock that has started anew."""

    first: int
    healed: int | None = None
    healed_pts: int | None = None
    over: int | None = None


class Trust:
    """Which pictures may be labelled.

    From a refused or flagged packet on, until the next clean key packet, every picture may be smeared, whether the decoder
    flags it or not. In presentation order: what is shown before the key picture but decoded after it (an open group of
    pictures) leans on the damaged ones too. The beginning counts as damaged: nothing is clean before the first key packet. The
    packet behind a flagged one counts as damaged, too: where a parser cuts the packets, as in transport streams, FFmpeg flags
    the one before the loss.
    """

    def __init__(self) -> None:
        self._faults = [_Fault(0)]
        self._flagged = False
        self._key: tuple[int, int] | None = None
        """The last key packet, and its presentation time."""

    def packet(self, index: int, packet: Packet, seen: PacketVerdict = NO_VERDICT, *, gap: bool = False) -> None:
        """Look at a packet before it is decoded. seen: what it says of itself. gap: others before it are missing."""
        if gap or seen.missing:
            # Before the look for a key: that is good all the same, what is shown before it is not.
            self.damaged(index, packet.pts)
        flagged, self._flagged = self._flagged, packet.is_corrupt
        if flagged or packet.is_corrupt:
            self.damaged(index, packet.pts)
        elif seen.renewed is not None:
            self._heal(index, packet.pts, since=index - seen.renewed)
        elif packet.is_keyframe and seen.key:
            self._heal(index, packet.pts, since=index)

    def _heal(self, index: int, pts: int | None, since: int) -> None:
        for fault in self._faults:
            if fault.healed is None and fault.first <= since:
                fault.healed, fault.healed_pts = index, pts
            elif pts is not None and fault.healed_pts is not None and fault.over is None and pts < fault.healed_pts:
                fault.over = index
        if since == index:
            self._key = None if pts is None else (index, pts)

    def damaged(self, index: int, pts: int | None = None) -> None:
        """The packet, with this presentation time if it is known, could not be decoded, is flagged, or some of it is missing.

        One that is shown before the last key picture, although it comes behind it, spoils nothing that is shown after that.
        """
        last = self._faults[-1] if self._faults else None
        if self._key is not None and pts is not None and pts < self._key[1]:
            if last is None or last.healed != self._key[0]:
                self._faults.append(_Fault(index, *self._key))
        elif last is None or last.healed is not None:
            self._faults.append(_Fault(index))

    def corrupt(self, index: int, pts: int | None) -> bool:
        """Whether the picture that packet `index` made cannot be trusted."""
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
    """A codec context that gives captures: each picture with the time at which its packet came, and whether it can be
    trusted. Thread: the source's."""

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
        """threads: 1 for live streams: frame threads would hand each picture out packets later, hidden from every stamp."""
        whole = threads > 1 and context.name not in NO_FRAME_THREADS
        context.thread_type = ThreadType.AUTO if whole else ThreadType.SLICE
        context.thread_count = threads
        context.copy_opaque = True
        context.options = {**context.options, **decoder_limits.pixels(decoder_limits.VIDEO_PIXELS)}
        # Pictures before the first key packet come out too (as corrupt): they show that a camera with a long group of
        # pictures is alive, which may send its next key picture later than the read limit.
        context.flags |= Flags.output_corrupt
        self.last_s = clock()
        """When the last picture came."""
        self._context = context
        self._watch = watch
        self._info = info
        self._timeline = timeline
        self._clock = clock
        self._look = PacketInspector(context)
        self._trust = Trust()
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
        """What one packet gives; an empty one at the end of the stream gives what is left inside.

        damaged: some of the packet is missing, or may be. gap: others before it are missing.
        aspect: of a sample, where the container knows it. captured_s: see `Capture`.
        """
        self._index += 1
        packet.opaque = (self._index, captured_s)
        self._trust.packet(self._index, packet, self._look.at(packet), gap=gap)
        if damaged:
            self._trust.damaged(self._index, packet.pts)
        for frame in self._decode(packet):
            assert isinstance(frame, av.VideoFrame)
            made_by, captured_s = frame.opaque if isinstance(frame.opaque, tuple) else (self._index, None)
            corrupt = self._trust.corrupt(made_by, frame.pts)
            if frame.is_corrupt and not corrupt:
                corrupt = True
                self._trust.damaged(made_by, frame.pts)
            # A clock that starts anew does so with a new packet.
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
        try:
            return self._context.decode(packet)
        except av.error.DecoderNotFoundError:
            raise
        except av.error.FFmpegError as error:
            # Whatever it calls it: invalid data, out of memory (see `bounds`), not implemented, a bug of its own.
            self._trust.damaged(self._index)
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
    """Decode a stream's packets. Where their iterator raises, what is inside the decoder comes out before the error does.

    packets: with `silence_s` those of all streams, or nobody notices that only the sound goes on.
    silence_s: without a picture for so long the stream counts as broken off, whatever else it sends.
    gaps: asked after each packet whether the transport has lost some of it, or something before it.

    :raises SourceError: after `silence_s`.
    """
    decoder = PictureDecoder(decoder_of(stream), watch=watch, info=info, timeline=timeline, threads=threads, clock=clock)
    asked_s = clock()
    for packet in _to_the_last(packets, stream):
        if stop.is_set():
            return
        arrived_s = clock()
        if silence_s is not None and arrived_s - asked_s >= silence_s:
            # Nothing has come: a demuxer whose read was broken off gives out what it held back, old by now and cut off.
            raise SourceError(f"nothing came within {silence_s:g} s (the read timeout)")
        # Not packet.stream_index: that is 0 for the packet at the end which empties the decoder, whatever its stream.
        if packet.stream.index == stream.index:
            yield from decoder.captures(packet, arrived_s, damaged=gaps(), aspect=stream.sample_aspect_ratio)
        asked_s = clock()
        if silence_s is not None and asked_s - decoder.last_s > silence_s:
            raise SourceError(f"no picture for {silence_s:g} s (the read timeout)")


def _to_the_last(packets: Iterable[Packet], stream: VideoStream) -> Iterator[Packet]:
    """The packets, and at their end one that empties the decoder, also where they break off."""
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
    """What the container says of the stream."""
    rate = stream.average_rate or stream.guessed_rate
    if rate and stream.guessed_rate and stream.container.format.name == "avi":
        rate = min(rate, stream.guessed_rate)  # its header may count fields, or packets without anything in them
    duration_s = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else None
    return StreamInfo(
        time_base=Fraction(stream.time_base) if stream.time_base else None,
        rate=Fraction(rate) if rate else None,
        frames=stream.frames or (round(duration_s * rate) if duration_s and rate else None),
        duration_s=duration_s,
        sound=sound,
    )
