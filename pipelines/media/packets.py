"""Packets of a container, as both sources and sinks take them from PyAV."""

from __future__ import annotations

from collections.abc import Iterator

from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream


def demuxed(container: InputContainer, *streams: Stream) -> Iterator[Packet]:
    """All packets of the streams, or of all streams, and an empty one for each at the end.

    A stream that shows up while packets are read (a sound track that a transport stream names late, a broken byte) makes PyAV
    18.1 look beyond what it has made room for when it comes to the empty ones: an IndexError, or none, by chance. The
    packets were all there then; that an empty one may be missing, whoever needs it must mend.
    """
    packets = container.demux(*streams)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, IndexError):
            return
        yield packet
