"""The sound of a file, carried over beside its annotated video: packets are copied bit for bit, nothing is decoded."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from fractions import Fraction
from itertools import chain, islice

import av
from av.audio.stream import AudioStream
from av.bitstream import BitStreamFilterContext
from av.container import InputContainer, OutputContainer
from av.format import Flags
from av.packet import Packet
from av.stream import Discard

from pipelines.errors import reason
from pipelines.media.local_files import LOCAL, file_address
from pipelines.media.packets import demuxed
from pipelines.media.tracks import watched_video
from pipelines.sinks.containers import CONTAINERS
from pipelines.sinks.mux_probe import PACKETS, add_track, holds

log = logging.getLogger("watchline.sinks.sound")

_Timed = tuple[Fraction, "Packet[AudioStream]"]

# Kept of what lies before the first picture: decoders need the codec's priming (AAC 21-48 ms, Opus 80 ms).
_PRIMING_S = Fraction(1, 10)

# FFmpeg's own limits for a step of the source's clock (`-dts_delta_threshold`, and 0.1 s backwards).
_AHEAD_S = Fraction(10)
_BACK_S = Fraction(-1, 10)

# How far to look for the first picture: H.264 reorders at most 16; a stream without keyframes is given up.
_REORDER = 17
_PATIENCE = 1000


def open_sound(path: str, output: OutputContainer) -> Sound | None:
    """Add the sound of `path` to an output that has not begun; None, with one log line, if it cannot go in there."""
    try:
        origin_s = first_picture_s(path)
        source = _opened(path)
    except (OSError, av.FFmpegError, ValueError) as error:
        log.warning("the sound of %s is left out: %s", path, reason(error))
        return None
    stream = source.streams.best("audio")
    if not isinstance(stream, AudioStream):
        source.close()
        return None
    reader = _Reader(path, source, stream, -origin_s, output.format.name)
    first = reader.first
    if first and holds(output.format.name, output.container_options, stream, first):
        return Sound(reader, output, add_track(output, stream, first[0]))
    if first:
        log.warning("the sound of %s is left out: %s", path, _refusal(stream, first, output.format.name))
    reader.close()
    return None


def _refusal(stream: AudioStream, first: Sequence[Packet[AudioStream]], format: str) -> str:
    """Why a sound cannot go in there, and where it could."""
    codec = stream.codec_context.name if stream.codec_context else "its codec"
    usual = {container.format: container.suffixes[0] for container in CONTAINERS}
    others = [suffix for name, suffix in usual.items() if name != format and holds(name, {}, stream, first)]
    advice = f"; {' or '.join(others)} would hold it" if others else ", nor into any other video that can be written"
    return f"{codec} cannot be copied into {usual[format]}{advice}"


def _opened(path: str) -> InputContainer:
    """A file on the disk: no sign in its name means anything, and a playlist leads to nothing on the network."""
    return av.open(file_address(path), options=LOCAL)


class Sound:
    """Copies what a reader gives into a track of `output`.

    Owned by the video file that it goes into, used under its lock. A source that breaks off ends the sound, with one log
    line, never the video.
    """

    def __init__(self, reader: _Reader, output: OutputContainer, track: AudioStream) -> None:
        self._reader = reader
        self._output = output
        self._track = track
        self._packets = iter(reader)
        self._next = next(self._packets, None)

    def copy(self, until_s: Fraction | None) -> None:
        """Copy what begins before `until_s`, time since the first picture; None: all that is left.

        :raises OSError, av.FFmpegError: if the output cannot be written.
        """
        while self._next is not None and (until_s is None or self._next[0] < until_s):
            packet = self._next[1]
            packet.stream = self._track
            self._output.mux_one(packet)
            self._next = next(self._packets, None)

    def close(self) -> None:
        """Let the source go. Closing twice is fine."""
        self._next = None
        self._reader.close()


class _Reader:
    """The packets of one audio stream, moved so that the source's first picture is at nought (by `shift_s`).

    Keeps `source` open until it is closed. `format`: what the packets are for.
    """

    def __init__(self, path: str, source: InputContainer, stream: AudioStream, shift_s: Fraction, format: str) -> None:
        self._path = path
        self._source = source
        # Elsewhere a long step is a true gap in the sound.
        self._ahead_s = _AHEAD_S if Flags.ts_discont in Flags(source.format.flags) else None
        for other in source.streams:
            if other is not stream:
                other.discard = Discard.all
        self._packets = self._demux(stream, shift_s, _unwrapped(stream, format))
        self._head = list(islice(self._packets, PACKETS))

    @property
    def first(self) -> list[Packet[AudioStream]]:
        """The first packets, which are still to come."""
        return [packet for _, packet in self._head]

    def __iter__(self) -> Iterator[_Timed]:
        """All packets with their time since the first picture. Only once."""
        return chain(self._head, self._packets)

    def close(self) -> None:
        """Let the source go. Closing twice is fine."""
        self._packets.close()
        self._source.close()

    def _demux(
        self, stream: AudioStream, shift_s: Fraction, unwrap: BitStreamFilterContext | None
    ) -> Generator[_Timed, None, None]:
        """Packets with their time since the first picture, pts and dts moved accordingly, dts never going back."""
        end_s: Fraction | None = None
        try:
            for packet in demuxed(self._source, stream):
                if not packet.size or packet.pts is None:
                    continue
                tick_s = packet.time_base
                start_s = packet.pts * tick_s + shift_s
                if end_s is not None and self._jumped(start_s - end_s):
                    shift_s += end_s - start_s
                    start_s = end_s
                end_s = start_s + (packet.duration or 0) * tick_s
                if start_s >= -_PRIMING_S:
                    packet.pts += round(shift_s / tick_s)
                    packet.dts = packet.pts
                    yield from ((start_s, ready) for ready in (unwrap.filter(packet) if unwrap else [packet]))
        except (OSError, av.FFmpegError) as error:
            log.warning("the sound of %s ends early: %s", self._path, reason(error))

    def _jumped(self, step_s: Fraction) -> bool:
        return step_s < _BACK_S or (self._ahead_s is not None and step_s > self._ahead_s)


def first_picture_s(path: str) -> Fraction:
    """Time, on the container's own clock, of the picture that a decoder shows first.

    Not the stream's start time: a recording cut in the middle begins with packets that no decoder shows, and an edit
    list hides some. It is the earliest packet from the first keyframe on that is not to be discarded.

    :raises OSError, av.FFmpegError: if the file cannot be read.
    """
    with _opened(path) as source:
        stream = watched_video(source)
        if stream is None:
            return Fraction(0)
        times: list[int] = []
        key: int | None = None
        for count, packet in enumerate(demuxed(source, stream)):
            if packet.pts is None:
                continue
            key = packet.pts if key is None and packet.is_keyframe else key
            if key is not None and packet.pts >= key and not packet.is_discard:
                times.append(packet.pts)
            if len(times) == _REORDER or count == _PATIENCE:
                break
        return min(times, default=stream.start_time or 0) * (stream.time_base or Fraction(0))


def _unwrapped(stream: AudioStream, format: str) -> BitStreamFilterContext | None:
    """AAC from MPEG-TS has a header (ADTS) on each packet, which has to come off in other containers.

    FFmpeg's muxers put this filter in by themselves; the mp4 muxer of PyAV 18.1 refuses such packets instead.
    """
    codec = stream.codec_context
    wrapped = codec is not None and codec.name == "aac" and not codec.extradata_size
    return BitStreamFilterContext("aac_adtstoasc", stream) if wrapped and format != "mpegts" else None
