"""Streams for the tests: pictures encoded on the spot, and their NAL units put into RTP packets."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import av
import numpy as np
import numpy.typing as npt

from pipelines.sources.rtp.access_units import AccessUnits
from pipelines.sources.rtp.h264_payload import H264
from pipelines.sources.rtp.h265_payload import H265
from pipelines.sources.rtp.packet import RtpPacket
from pipelines.sources.rtp.sequence import PacketOrder
from pipelines.sources.rtp.unit import START, AccessUnit

Codec = Literal["h264", "h265"]
Marks = Literal["last", "every", "never"]
Nals = list[bytes]
STEP = 3600
PAYLOAD_TYPE = 96
CODECS: tuple[Codec, ...] = ("h264", "h265")
FLAVOURS = {"h264": ("libx264", "h264"), "h265": ("libx265", "hevc")}


@dataclass(frozen=True)
class Stream:
    """`units[k]` are the NAL units of access unit k, in coding order; `stamps[k]` is its RTP timestamp."""

    codec: Codec
    units: list[Nals]
    stamps: list[int]

    def data(self, k: int) -> bytes:
        return annex_b(self.units[k])

    def slices(self, k: int) -> Nals:
        return slices(self.codec, self.units[k])


def annex_b(nals: Sequence[bytes]) -> bytes:
    return b"".join(START + nal for nal in nals)


def split(data: bytes) -> Nals:
    """The NAL units of Annex B data."""
    return [nal for piece in data.split(b"\0\0\1") if (nal := piece.rstrip(b"\0"))]


def slices(codec: Codec, nals: Sequence[bytes]) -> Nals:
    if codec == "h264":
        return [nal for nal in nals if 1 <= nal[0] & 31 <= 5]
    return [nal for nal in nals if nal[0] >> 1 < 32]


@functools.cache
def stream(
    codec: Codec,
    frames: int = 12,
    gop: int = 6,
    b_frames: int = 0,
    slices: int = 1,
    first: int = 1000,
    size: tuple[int, int] = (128, 96),
    profile: str = "",
    open_gop: bool = False,
) -> Stream:
    """Pictures of moving noise, so that each takes several packets; `frames` of them, a key picture every `gop`.

    size: (width, height), multiples of 4. profile: of H.264. open_gop: B-frames before a key picture depend on
    earlier pictures. Several slices in H.265 are cut out of one and cannot be decoded: x265's own crash now and then.
    """
    width, height = size
    encoder = av.CodecContext.create(FLAVOURS[codec][0], "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuv420p"
    encoder.time_base, encoder.framerate = Fraction(1, 25), Fraction(25)
    encoder.gop_size, encoder.max_b_frames = gop, b_frames
    if codec == "h264":
        encoder.options = {"crf": "24", "preset": "veryfast", "x264-params": f"slices={slices}:threads=1:scenecut=0"}
        encoder.options["x264-params"] += f":open-gop={int(open_gop)}"
        encoder.options |= {"profile": profile} if profile else {}
    else:
        parameters = f"log-level=none:pools=none:frame-threads=1:scenecut=0:bframes={b_frames}:aud=1"
        parameters += f":keyint={gop}:min-keyint={gop}:hash=1:open-gop={int(open_gop)}"
        encoder.options = {"crf": "24", "preset": "ultrafast", "x265-params": parameters}
    rows = height * 3 // 2
    noise = np.random.default_rng(7).integers(60, 200, (rows + frames, width), np.uint8)
    packets: list[av.Packet] = []
    for k in range(frames):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(noise[k : k + rows]), format="yuv420p")
        frame.pts = k
        packets += encoder.encode(frame)
    packets += encoder.encode(None)
    stamps = [first + STEP * (packet.pts or 0) for packet in packets]
    units = [split(bytes(packet)) for packet in packets]
    if codec == "h265" and slices > 1:
        units = [[part for nal in nals for part in cut(nal, slices)] for nals in units]
    return Stream(codec, units, stamps)


def cut(nal: bytes, count: int) -> Nals:
    """A slice as `count` of them, the first with the bit that says so; other NAL units as they are."""
    if nal[0] >> 1 >= 32:
        return [nal]
    size = -(-len(nal) // count)
    return [
        nal[:2] + (b"\xaf" if at == 0 else b"\x2f") + nal[2 + at : 2 + at + size] + b"\x80"
        for at in range(0, len(nal) - 2, size)
    ]


def decode(codec: Codec, units: Sequence[bytes]) -> list[npt.NDArray[np.uint8]]:
    """The pictures, in presentation order."""
    decoder = av.CodecContext.create(FLAVOURS[codec][1], "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    frames = [frame for data in units for frame in decoder.decode(av.Packet(data))] + decoder.decode(None)
    return [frame.to_ndarray(format="yuv420p") for frame in frames]


def payloads(codec: Codec, nals: Sequence[bytes], mtu: int, aggregate: bool) -> Iterator[tuple[bytes, bool]]:
    """The payloads of packets, and whether each ends a NAL unit."""
    together: Nals = []
    head, code = (1, bytes((0x78,))) if codec == "h264" else (2, bytes((48 << 1, 1)))

    def flushed() -> Iterator[tuple[bytes, bool]]:
        if len(together) == 1:
            yield together[0], True
        elif together:
            yield code + b"".join(len(nal).to_bytes(2, "big") + nal for nal in together), True
        together.clear()

    for nal in nals:
        if len(nal) > mtu:
            yield from flushed()
            yield from fragments(codec, nal, mtu)
            continue
        if not aggregate or head + sum(len(other) + 2 for other in together) + len(nal) + 2 > mtu:
            yield from flushed()
        together.append(nal)
    yield from flushed()


def fragments(codec: Codec, nal: bytes, mtu: int) -> Iterator[tuple[bytes, bool]]:
    """FU-A or FU payloads of one NAL unit."""
    if codec == "h264":
        body, kind, indicator = nal[1:], nal[0] & 31, bytes((nal[0] & 0xE0 | 28,))
    else:
        body, kind, indicator = nal[2:], nal[0] >> 1 & 63, bytes((nal[0] & 0x81 | 49 << 1, nal[1]))
    size = mtu - len(indicator) - 1
    for at in range(0, len(body), size):
        start, end = at == 0, at + size >= len(body)
        yield indicator + bytes((start << 7 | end << 6 | kind,)) + body[at : at + size], end


def packetize(
    source: Stream,
    *,
    mtu: int = 300,
    aggregate: bool = True,
    marks: Marks | Sequence[Marks] = "last",
    sequence: int = 100,
    ssrc: int = 5,
    start_s: float = 0.0,
) -> list[tuple[int, RtpPacket]]:
    """Each packet with the index of its unit. A unit's packets come 0.1 ms after each other, units 40 ms."""
    found: list[tuple[int, RtpPacket]] = []
    for k, (nals, stamp) in enumerate(zip(source.units, source.stamps, strict=True)):
        habit = marks if isinstance(marks, str) else marks[k]
        pieces = list(payloads(source.codec, nals, mtu, aggregate))
        for j, (payload, ends) in enumerate(pieces):
            mark = {"last": j + 1 == len(pieces), "every": ends, "never": False}[habit]
            arrived_s = start_s + 0.04 * k + 0.0001 * j
            number = (sequence + len(found)) & 0xFFFF
            found.append((k, RtpPacket(number, stamp & 0xFFFFFFFF, mark, PAYLOAD_TYPE, ssrc, payload, arrived_s)))
    return found


class Reader:
    """Everything together: packets in order of arrival in, access units out."""

    def __init__(self, codec: Codec, window: int = 0) -> None:
        self.sequence = PacketOrder(window=window)
        self.units = AccessUnits(H264() if codec == "h264" else H265())
        self.out: list[AccessUnit] = []

    def push(self, *packets: RtpPacket) -> Reader:
        for packet in packets:
            for item in self.sequence.push(packet):
                self.out += self.units.push(item)
        return self

    def due(self, now_s: float) -> Reader:
        for item in self.sequence.due(now_s):
            self.out += self.units.push(item)
        self.out += self.units.due(now_s)
        return self

    def end(self) -> list[AccessUnit]:
        for item in self.sequence.flush():
            self.out += self.units.push(item)
        self.out += self.units.flush()
        return self.out


def wire(packet: RtpPacket) -> bytes:
    """The packet as it goes over the network."""
    head = (0x80, packet.marker << 7 | packet.payload_type, packet.sequence, packet.timestamp, packet.ssrc)
    return struct.pack(">BBHII", *head) + packet.payload


def bare(packets: Sequence[tuple[int, RtpPacket]]) -> list[RtpPacket]:
    return [packet for _, packet in packets]
