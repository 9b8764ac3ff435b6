"""A test of a sound in a container: its first packets are written to a file in memory and read again.

No weaker test suffices. FFmpeg's list of codecs by container has Opus for mov, and the muxer refuses it. mp4 accepts PCM, FLAC
and AC-3, and writes a header that no player opens if the source gives too little information. MPEG-TS accepts every codec, and
marks codecs without a number of their own as unknown data.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import av
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Stream

PACKETS = 16
"""Packets of the test."""


def holds(format: str, options: Mapping[str, str], stream: AudioStream, packets: Sequence[Packet[AudioStream]]) -> bool:
    """Whether a file of this format plays the sound. packets: the first packets of `stream`; they are not changed."""
    file = io.BytesIO()
    try:
        with av.open(file, "w", format=format, container_options=dict(options)) as trial:
            track = add_track(trial, stream, packets[0])
            for packet in packets:
                trial.mux_one(_copied(packet, track))
        file.seek(0)
        with av.open(file, "r") as again:
            return _plays(again, stream)
    except (OSError, av.FFmpegError, ValueError):
        return False


def add_track(output: OutputContainer, stream: AudioStream, first: Packet[AudioStream]) -> AudioStream:
    """Add a track for the packets of `stream` to `output`. first: the first packet that will be written.

    :raises ValueError: if the container does not take the codec.
    """
    track = output.add_stream_from_template(stream)
    codec = track.codec_context
    if codec.layout.name.endswith(" channels"):
        # AVI, ASF and Matroska give PCM only a number of channels, and mp4 needs their order: FFmpeg's default is taken.
        codec.layout = f"{codec.layout.nb_channels}c"
    if first.has_sidedata("new_extradata"):
        # The header of the output is written before the muxer sees the first packet.
        codec.extradata = bytes(first.get_sidedata("new_extradata"))
    return track


def _copied(packet: Packet[AudioStream], track: AudioStream) -> Packet[Stream]:
    """A copy of the packet for another track. A muxer rewrites the times of the packets that it gets."""
    copy = Packet(bytes(packet))
    copy.pts, copy.dts, copy.duration, copy.time_base = packet.pts, packet.dts, packet.duration, packet.time_base
    copy.is_keyframe = packet.is_keyframe
    copy.stream = track
    return copy


def _plays(file: InputContainer, wanted: AudioStream) -> bool:
    """Whether the file has a sound of the wanted form with at least one packet that decodes."""
    found = file.streams.best("audio")
    if not isinstance(found, AudioStream) or found.codec_context is None:
        return False
    return _form(found) == _form(wanted) and any(packet.decode() for packet in file.demux(found))


def _form(stream: AudioStream) -> tuple[str, int, int]:
    """Codec, samples a second, channels. In mp4 and MPEG-TS the layers of MPEG audio are one codec, which one decoder plays."""
    codec = stream.codec_context
    name = "mpeg audio" if codec.name.startswith(("mp1", "mp2", "mp3")) else codec.name
    return name, codec.rate, codec.layout.nb_channels
