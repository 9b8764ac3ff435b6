"""Reading packets of a container with PyAV, for sources and sinks."""

from __future__ import annotations

from collections.abc import Iterator

from av.container import InputContainer
from av.packet import Packet
from av.stream import Stream


def demuxed(container: InputContainer, *streams: Stream) -> Iterator[Packet]:
    """All packets of the given streams (of all streams if none is given), then one empty packet for each stream.

    Some of the empty packets may be missing; a caller that needs them must add them. If a new stream appears while packets
    are read (a sound track that a transport stream announces late, a broken byte), PyAV 18.1 reads beyond its list of streams
    when it makes the empty packets, which raises an IndexError or not, by chance. All other packets have been read by then.
    """
    packets = container.demux(*streams)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, IndexError):
            return
        yield packet
