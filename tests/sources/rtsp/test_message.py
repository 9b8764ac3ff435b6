"""RTSP messages and interleaved frames out of bytes, however they are cut, and the limits of sizes."""

from __future__ import annotations

import random

import pytest

from pipelines.errors import SourceError
from pipelines.sources.rtsp.message import (
    MAX_BODY,
    MAX_HEAD,
    MAX_LINES,
    MAX_STRAY,
    Headers,
    Interleaved,
    ProtocolError,
    Response,
    RtspItem,
    RtspRequest,
    Wire,
)

OK = b"RTSP/1.0 200 OK\r\nCSeq: 3\r\n\r\n"


def _items(*parts: bytes) -> list[RtspItem]:
    wire, found = Wire(), []
    for part in parts:
        wire.feed(part)
        found += list(wire)
    return found


def test_a_request_as_it_goes_out() -> None:
    request = RtspRequest("DESCRIBE", "rtsp://h/cam", Headers((("CSeq", "2"), ("Accept", "application/sdp"))))
    assert request.encode() == b"DESCRIBE rtsp://h/cam RTSP/1.0\r\nCSeq: 2\r\nAccept: application/sdp\r\n\r\n"


def test_a_body_brings_its_length() -> None:
    assert Response(200, "OK", Headers(), b"abc").encode() == b"RTSP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"


def test_no_value_begins_a_line_of_its_own() -> None:
    request = RtspRequest("PLAY", "rtsp://h/\r\nEvil: 1", Headers((("Session", "1\r\nEvil: 2"),)))
    assert request.encode().count(b"\n") == 3


def test_secrets_are_not_in_the_repr() -> None:
    request = RtspRequest("PLAY", "rtsp://h/", Headers((("Authorization", "Basic c2VjcmV0"),)))
    assert "c2VjcmV0" not in repr(request)


def test_an_answer_with_a_body() -> None:
    (item,) = _items(b"RTSP/1.0 200 Fine \r\ncontent-LENGTH: 3\r\nX:  y \r\n\r\nabc")
    assert isinstance(item, Response)
    assert (item.status, item.reason, item.body) == (200, "Fine", b"abc")
    assert item.headers.get("x") == "y"
    assert item.headers.get("nothing") == ""


@pytest.mark.parametrize(
    ("data", "status", "fields"),
    [
        (b"RTSP/1.0 200\r\n\r\n", 200, ()),
        (b"RTSP/2.0 551 Option not supported\r\n\r\n", 551, ()),
        (b"RTSP/1.0 200 OK\nCSeq: 1\n\n", 200, (("CSeq", "1"),)),
        (b"RTSP/1.0 200 OK\r\nA: b\r\n  c\r\n\td\r\n\r\n", 200, (("A", "b c d"),)),
        (b"RTSP/1.0 200 OK\r\n folded into nothing\r\nA:b\r\n\r\n", 200, (("A", "b"),)),
        (b"RTSP/1.0 200 OK\r\nno colon\r\nA:b:c\r\n\r\n", 200, (("A", "b:c"),)),
        (b"RTSP/1.0 200 \xff\xfe\r\nA: \xe4\0\r\n\r\n", 200, (("A", "�"),)),
        (
            b"RTSP/1.0 401 No\r\nWWW-Authenticate: a\r\nwww-authenticate: b\r\n\r\n",
            401,
            (("WWW-Authenticate", "a"), ("www-authenticate", "b")),
        ),
    ],
)
def test_answers_as_servers_write_them(data: bytes, status: int, fields: tuple[tuple[str, str], ...]) -> None:
    (item,) = _items(data)
    assert isinstance(item, Response)
    assert item.status == status
    assert item.headers.fields == fields
    assert item.headers.all("WWW-authenticate") == [v for k, v in fields if k.lower() == "www-authenticate"]


def test_a_request_of_the_server() -> None:
    (item,) = _items(b"set_parameter rtsp://h/ RTSP/1.0\r\nCSeq: 9\r\nContent-Length: 2\r\n\r\nhi")
    assert isinstance(item, RtspRequest)
    assert (item.method, item.uri, item.headers.get("cseq"), item.body) == ("SET_PARAMETER", "rtsp://h/", "9", b"hi")


STREAM = (
    OK + b"$\0\0\x03abc" + b"\r\n" + OK + b"$\x01\0\0" + b"OPTIONS * RTSP/1.0\r\nContent-Length: 1\r\n\r\n$" + b"$\xff\0\x01$"
)


def test_everything_mixed() -> None:
    kinds = [type(item).__name__ for item in _items(STREAM)]
    assert kinds == ["Response", "Interleaved", "Response", "Interleaved", "RtspRequest", "Interleaved"]
    assert [(i.channel, i.data) for i in _items(STREAM) if isinstance(i, Interleaved)] == [(0, b"abc"), (1, b""), (255, b"$")]


def test_the_cut_does_not_matter() -> None:
    whole = _items(STREAM)
    assert _items(*(STREAM[k : k + 1] for k in range(len(STREAM)))) == whole
    for cut in range(len(STREAM)):
        assert _items(STREAM[:cut], STREAM[cut:]) == whole


def test_what_an_iteration_left_comes_with_the_next() -> None:
    wire = Wire()
    wire.feed(OK + OK[:-2])
    assert next(iter(wire)) == _items(OK)[0]
    assert list(wire) == []
    wire.feed(b"\r\n" + OK)
    assert list(wire) == _items(OK + OK)


def test_what_is_taken_does_not_stay() -> None:
    wire = Wire()
    packet = Interleaved(0, bytes(1400)).encode()
    wire.feed(packet[:700])
    for _ in range(2000):
        wire.feed(packet[700:] + packet[:700])
        assert len(list(wire)) == 1
        assert wire.pending == 700


@pytest.mark.parametrize(
    "head",
    [
        b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length:\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: \xd9\xa3\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1),
        b"RTSP/1.0 200 OK\r\nContent-Length: 10485760\r\n\r\n",
        b"RTSP/1.0 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"RTSP/1.0 abc\r\n\r\n",
        b"RTSP/1.0 2000 OK\r\n\r\n",
        b"HTTP/1.1 400 Bad RtspRequest\r\n\r\n",
        b"hello\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x15\x03\x03\0\x02",
        b"\0",
        b" RTSP/1.0 200 OK\r\n\r\n",
        b"\r\n" * MAX_STRAY,
        b"RTSP/1.0 200 OK\r\n" + b"X: y\r\n" * (MAX_LINES + 1),
        b"RTSP/1.0 200 OK\r\nX: " + b"y" * MAX_HEAD,
        b"R" * (MAX_HEAD + 1),
        OK + b"?",
    ],
)
def test_what_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        _items(head)
    assert isinstance(caught.value, SourceError)
    assert not caught.value.permanent
    with pytest.raises(ProtocolError):
        _items(*(head[k : k + 1] for k in range(len(head))))


def test_the_largest_body_and_head() -> None:
    (item,) = _items(b"RTSP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % MAX_BODY + bytes(MAX_BODY))
    assert isinstance(item, Response)
    assert len(item.body) == MAX_BODY
    assert len(_items(b"RTSP/1.0 200 OK\r\n" + b"X: y\r\n" * (MAX_LINES - 1) + b"\r\n")) == 1


def test_equal_lengths_are_no_contradiction() -> None:
    (item,) = _items(b"RTSP/1.0 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx")
    assert isinstance(item, Response)
    assert item.body == b"x"


def test_a_port_that_speaks_http_is_named() -> None:
    with pytest.raises(ProtocolError, match="HTTP"):
        _items(b"HTTP/1.1 400 Bad RtspRequest\r\nServer: x\r\n\r\n")


def test_hostile_bytes_raise_nothing_else() -> None:
    chance = random.Random(3)
    for _ in range(3000):
        data = bytearray(STREAM * 2)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    del data[at : at + chance.randrange(9)]
                case 2:
                    data[at:at] = chance.randbytes(chance.randrange(9))
                case 3:
                    data[at:at] = data[: chance.randrange(40)]
        wire = Wire()
        try:
            for cut in range(0, len(data), 37):
                wire.feed(bytes(data[cut : cut + 37]))
                for item in wire:
                    assert isinstance(item, RtspRequest | Response | Interleaved)
        except ProtocolError:
            pass
        assert wire.pending <= len(data)
