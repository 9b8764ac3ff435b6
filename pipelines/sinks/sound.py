"""Sound: copies the sound of a file into its annotated video, packet by packet, without decoding."""

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

# Sound before the first picture that is kept: decoders need the codec's priming (AAC 21-48 ms, Opus 80 ms).
_PRIMING_S = Fraction(1, 10)

# Limits for a step of the source's clock, as in FFmpeg (`-dts_delta_threshold`, and 0.1 s backwards).
_AHEAD_S = Fraction(10)
_BACK_S = Fraction(-1, 10)

# The search for the first picture ends after so many pictures (H.264 reorders at most 16) or packets (a stream without
# keyframes).
_REORDER = 17
_SEARCHED = 1000


def open_sound(path: str, output: OutputContainer) -> Sound | None:
    """Add the sound of the file `path` to an output before its first packet. None if the file has no sound, and, with one
    warning, if the sound cannot be read or the container does not take it."""
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
    """The reason of the refusal, and the kinds of file that take the sound. format: of the output."""
    codec = stream.codec_context.name if stream.codec_context else "its codec"
    usual = {container.format: container.suffixes[0] for container in CONTAINERS}
    others = [suffix for name, suffix in usual.items() if name != format and holds(name, {}, stream, first)]
    advice = f"; {' or '.join(others)} would hold it" if others else ", nor into any other video that can be written"
    return f"{codec} cannot be copied into {usual[format]}{advice}"


def _opened(path: str) -> InputContainer:
    """Open a file on the disk. No sign in its name has a meaning, and a playlist opens nothing on the network."""
    return av.open(file_address(path), options=LOCAL)


class Sound:
    """Copies the packets of a reader into a track of `output`.

    Owner: the video file, which calls it under its lock. A source that breaks off ends the sound with one warning; the video
    continues.
    """

    def __init__(self, reader: _Reader, output: OutputContainer, track: AudioStream) -> None:
        self._reader = reader
        self._output = output
        self._track = track
        self._packets = iter(reader)
        self._next = next(self._packets, None)

    def copy(self, until_s: Fraction | None) -> None:
        """Copy the packets that begin before `until_s`, in seconds since the first picture; None: all remaining packets.

        :raises OSError, av.FFmpegError: if the output cannot be written.
        """
        while self._next is not None and (until_s is None or self._next[0] < until_s):
            packet = self._next[1]
            packet.stream = self._track
            self._output.mux_one(packet)
            self._next = next(self._packets, None)

    def close(self) -> None:
        """Close the source. A second call does nothing."""
        self._next = None
        self._reader.close()


class _Reader:
    """The packets of one audio stream, with times since the source's first picture.

    source: stays open until `close`. shift_s: added to all times. format: the output's.
    """

    def __init__(self, path: str, source: InputContainer, stream: AudioStream, shift_s: Fraction, format: str) -> None:
        self._path = path
        self._source = source
        # In formats without this flag a long step forward is a true gap in the sound.
        self._ahead_s = _AHEAD_S if Flags.ts_discont in Flags(source.format.flags) else None
        for other in source.streams:
            if other is not stream:
                other.discard = Discard.all
        self._packets = self._demux(stream, shift_s, _unwrapped(stream, format))
        self._head = list(islice(self._packets, PACKETS))

    @property
    def first(self) -> list[Packet[AudioStream]]:
        """The first packets, at most `PACKETS`. The iteration yields them again."""
        return [packet for _, packet in self._head]

    def __iter__(self) -> Iterator[_Timed]:
        """All packets with their time since the first picture, in seconds. Can be iterated once."""
        return chain(self._head, self._packets)

    def close(self) -> None:
        """Close the source. A second call does nothing."""
        self._packets.close()
        self._source.close()

    def _demux(
        self, stream: AudioStream, shift_s: Fraction, unwrap: BitStreamFilterContext | None
    ) -> Generator[_Timed, None, None]:
        """The packets with their times in seconds. pts and dts are shifted by the same time; dts never decreases."""
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
        """Whether a step between two packets is a fault of the source's clock."""
        return step_s < _BACK_S or (self._ahead_s is not None and step_s > self._ahead_s)


def first_picture_s(path: str) -> Fraction:
    """The time of the first picture that a decoder shows, in seconds of the container's own clock.

    It differs from the stream's start time: a recording that was cut begins with packets that no decoder shows, and an edit
    list hides packets. It is the earliest time of all packets from the first keyframe on that are not marked to be discarded.

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
            if len(times) == _REORDER or count == _SEARCHED:
                break
        return min(times, default=stream.start_time or 0) * (stream.time_base or Fraction(0))


def _unwrapped(stream: AudioStream, format: str) -> BitStreamFilterContext | None:
    """A filter that removes the ADTS header of each AAC packet; None if the packets need no filter.

    AAC from MPEG-TS has these headers, and other containers must not. FFmpeg's muxers add this filter themselves; the mp4 muxer
    of PyAV 18.1 refuses the packets instead.
    """
    codec = stream.codec_context
    wrapped = codec is not None and codec.name == "aac" and not codec.extradata_size
    return BitStreamFilterContext("aac_adtstoasc", stream) if wrapped and format != "mpegts" else None
