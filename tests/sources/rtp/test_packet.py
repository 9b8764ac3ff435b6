"""RTP packets out of bytes, honest and lying."""

from __future__ import annotations

import random
import struct

import pytest

from pipelines.sources.rtp.packet import RtpPacket, parse


def wire(
    payload: bytes = b"abc",
    *,
    first: int = 0x80,
    marker: bool = False,
    kind: int = 96,
    sources: bytes = b"",
    extension: bytes = b"",
    padding: bytes = b"",
) -> bytes:
    header = struct.pack(">BBHII", first, marker << 7 | kind, 65535, 2**32 - 1, 0xFEEDBEEF)
    return header + sources + extension + payload + padding


FULL = wire(first=0xB2, marker=True, sources=bytes(8), extension=b"\xbe\xde\0\1abcd", padding=b"\0\0\3")


class TestParse:
    def test_a_plain_packet(self) -> None:
        assert parse(wire(marker=True), 1.5) == RtpPacket(65535, 2**32 - 1, True, 96, 0xFEEDBEEF, b"abc", 1.5)

    def test_everything_around_the_payload(self) -> None:
        found = parse(FULL, 0.0)
        assert found is not None
        assert (found.payload, found.marker, found.payload_type) == (b"abc", True, 96)

    def test_the_payload_is_its_own(self) -> None:
        for data in (wire(), FULL):
            buffer = bytearray(data)
            found = parse(memoryview(buffer), 0.0)
            buffer[:] = bytes(len(buffer))
            assert found is not None
            assert found.payload == b"abc"

    @pytest.mark.parametrize("kind", [0, 95, 97, 112, 127])
    def test_other_payload_types_are_not_the_tracks(self, kind: int) -> None:
        assert parse(wire(kind=kind), 0.0, 96) is None
        assert parse(wire(kind=kind), 0.0) is not None
        assert parse(wire(), 0.0, 96) is not None

    @pytest.mark.parametrize("data", [wire(b""), wire(b"", first=0xA0, padding=b"\0\0\0\4")])
    def test_no_payload_is_a_packet_too(self, data: bytes) -> None:
        found = parse(data, 0.0)
        assert found is not None
        assert found.payload == b""

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            wire(b"")[:11],
            wire(first=0x00),
            wire(first=0x40),
            wire(first=0xC0),
            wire(first=0x8F),
            wire(b"", first=0x90),
            wire(b"", first=0x90, extension=b"\xbe\xde\0"),
            wire(first=0x90, extension=b"\xbe\xde\xff\xff"),
            wire(b"", first=0x91, sources=bytes(4), extension=b"\xbe\xde\0\1abc"),
            wire(first=0xA0, padding=b"\0"),
            wire(first=0xA0, padding=b"\5"),
            wire(b"", first=0xA0, padding=b""),
        ],
    )
    def test_what_is_none(self, data: bytes) -> None:
        assert parse(data, 0.0) is None

    def test_every_cut_and_any_byte(self) -> None:
        chance = random.Random(1)
        for length in range(len(FULL)):
            parse(FULL[:length], 0.0)
        for _ in range(5000):
            data = bytearray(FULL)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            found = parse(data, 0.0)
            assert found is None or len(found.payload) <= len(FULL) - 12
