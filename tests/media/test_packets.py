"""Reading packets with PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import av
from av.container import InputContainer
from av.packet import Packet

from pipelines.media.packets import demuxed
from tests.clips import numbered


class Late:
    """A container in which a new stream appears while packets are read; it ends with the error of PyAV 18.1."""

    def demux(self, *_: object) -> Iterator[Packet]:
        yield Packet(10)
        yield Packet(20)
        raise IndexError("list index out of range")


def test_a_stream_that_shows_up_late_ends_nothing() -> None:
    assert [packet.size for packet in demuxed(cast(InputContainer, Late()))] == [10, 20]


def test_all_packets_and_the_mark_of_the_end(tmp_path: Path) -> None:
    with av.open(str(numbered(tmp_path / "clip.mp4", frames=5, sound=True))) as container:
        video = list(demuxed(container, container.streams.video[0]))
    assert [bool(packet.size) for packet in video] == [True] * 5 + [False]
