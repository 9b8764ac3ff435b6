"""Passwords are redacted, even in mistyped addresses, and control characters are escaped."""

from __future__ import annotations

import pytest

from pipelines.redact import one_line, printable, redact, redact_in, redact_url

SECRET = "geh3im"
SLIPS = (
    f"rtsp://bob:{SECRET}@host/cam",
    f"RTSP://bob:{SECRET}@host/cam",
    f" rtsp://bob:{SECRET}@host/cam",
    f"- rtsp://bob:{SECRET}@host/cam",
    f"rtsp:/bob:{SECRET}@host/cam",
    f"rtsp//bob:{SECRET}@host/cam",
    f"rtsp ://bob:{SECRET}@host/cam",
    f"rtsp:\\\\bob:{SECRET}@host/cam",
    f"bob:{SECRET}@host/cam",
    f"clips/rtsp:/bob:{SECRET}@host/cam",
    f"rtsp://bob:{SECRET}@{SECRET}@host/cam",
    f"rtsp://bob:a/{SECRET}#{SECRET}@host/cam",
    f"http://host/a?password={SECRET}&token={SECRET}",
    f"host/a?token={SECRET}",
    f"rtmp://host/live/{SECRET}",
    f"rtmp://host/live/{SECRET}/",
    f"rtmps://bob:{SECRET}@host/live/{SECRET}?x=1",
)

IN_PLACES_OF_ITS_OWN = (
    (f"rtsp://host/user=a_password={SECRET}_channel=1.sdp", "rtsp://host/user=***_password=***_channel=1.sdp"),
    (f"rtsp://host/x=1_pass_word=a_{SECRET}_s=0.sdp?real_stream", "rtsp://host/x=1_pass_word=***_s=0.sdp?***"),
    (f"rtsp://host/tcp/av0_0&user=admin&password={SECRET}", "rtsp://host/tcp/av0_0&user=***&password=***"),
    (f"rtsp://host/user=admin&password={SECRET}&channel=1", "rtsp://host/user=***&password=***&channel=1"),
    (f"rtsp://host/password=a/{SECRET}&channel=1", "rtsp://host/password=***&channel=1"),
    (f"rtsp://host/user%3Dadmin%26password%3D{SECRET}", "rtsp://host/user%3D***%26password%3D***"),
    (f"rtsp://host/a/psw={SECRET},ch=1/b", "rtsp://host/a/psw=***,ch=1/b"),
    (f"rtsp://host/live;pass={SECRET}", "rtsp://host/live;pass=***"),
    (f"rtsp://host/admin:{SECRET}/s", "rtsp://host/***/s"),
    (f"rtsp://host/admin%3A{SECRET}/s", "rtsp://host/***/s"),
    (f"rtsp://host/?loginuse=admin&loginpas={SECRET}", "rtsp://host/?loginuse=***&loginpas=***"),
    (f"rtsp://host/s?u=admin&p={SECRET}&ch=1", "rtsp://host/s?u=***&p=***&ch=1"),
    (f"rtsp://host/s?ch=1&as=admin:{SECRET}", "rtsp://host/s?ch=1&as=***"),
    (f"http://host/v.cgi?login=admin:{SECRET}", "http://host/v.cgi?login=***"),
    (f"rtsp://host/11?{SECRET}", "rtsp://host/11?***"),
    (f"rtmp://host/live/{SECRET}?a/b", "rtmp://host/live/***"),
    (f"rtsp://u:{SECRET}", "rtsp://***"),
    (f"rtsp://admin:{SECRET}/stream1", "rtsp://***/stream1"),
    (f"rtsp://admin:{SECRET}:127.0.0.1/s", "rtsp://***/s"),
    (f"rtsp://[admin:{SECRET}]/s", "rtsp://***/s"),
    ("rtsp://admin:123456/s", "rtsp://***/s"),
    (f"rtsp://user=admin&password={SECRET}", "rtsp://user=***&password=***"),
    (f"rtsp:/admin:{SECRET}/s", "rtsp:/***/s"),
    (f"rtsp:\\\\admin:{SECRET}\\s", "rtsp:\\\\***\\s"),
)
"""Secrets in other forms than `user:password@`, and addresses without a host."""


@pytest.mark.parametrize(("address", "safe"), IN_PLACES_OF_ITS_OWN)
def test_a_secret_in_a_place_of_its_own(address: str, safe: str) -> None:
    assert redact_url(address) == safe == redact_url(safe)
    assert redact(f"door: {address}: Connection refused ({address}).") == f"door: {safe}: Connection refused ({safe})."
    assert redact_in({"streams": {address: {"error": f"{address}: x"}}}) == {"streams": {safe: {"error": f"{safe}: x"}}}


@pytest.mark.parametrize("address", SLIPS)
def test_a_password_in_an_address(address: str) -> None:
    assert SECRET not in redact_url(address)
    assert "host" in redact_url(address)


@pytest.mark.parametrize("address", [*SLIPS, f"rtsp://bob:my {SECRET}@host/cam", f"bob:it's {SECRET}@host"])
@pytest.mark.parametrize("sentence", ["no such file: {!r}; give another", "cannot read {!r}"])
def test_a_password_in_a_sentence_that_quotes_the_address(address: str, sentence: str) -> None:
    assert SECRET not in redact(sentence.format(address))


@pytest.mark.parametrize("address", SLIPS)
def test_a_password_in_a_sentence(address: str) -> None:
    text = redact(f"door: {address}: Connection refused")
    assert SECRET not in text
    assert text.startswith("door: ")
    assert text.endswith("Connection refused")
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "synthetic:64x48@25",
        "/tmp/a b@c.mp4",
        "x@2x.png",
        "rtsp://host:554/cam?channel=1",
        "rtmp://host",
        "rtsp://host:554/stream1",
        "rtsp://host/cam/realmonitor?channel=1&subtype=0",
        "rtsp://host/Streaming/Channels/101",
        "rtsp://[fe80::1%25eth0]:554/h264Preview_01_main",
        "rtsp://host/ch0_0.h264/trackID=1",
        "http://HOST:PORT",
        "rtsp://host/axis-media/media.amp?profile=profile_1_h264&sessiontimeout=60&streamtype=unicast",
        "rtsp://host/tracks/101?starttime=2024-01-01T10:30:00Z",
        "http://host/10:30/a.m3u8?url=http://host:80/x",
        "/tmp/10:30/a_key=1.mp4",
        "C:/x/a:b.mp4",
        "a/user=1/x;y:z.mp4",
    ],
)
def test_what_holds_none_stays(text: str) -> None:
    assert redact_url(text) == text == redact(text)
    assert redact(f"the camera's: {text}, it's at 5 @ 3") == f"the camera's: {text}, it's at 5 @ 3"


def test_in_all_that_json_holds() -> None:
    assert redact_in({f"u:{SECRET}@h": [f"x u:{SECRET}@h", 1, None, 0.5, True]}) == {"***@h": ["x ***@h", 1, None, 0.5, True]}


def test_control_characters_are_seen_and_do_nothing() -> None:
    assert one_line("a\x1b[2Jb\nc\x9bd") == "a\\x1b[2Jb\\nc\\x9bd"
    assert one_line("\u202egpj.exe") == "\\u202egpj.exe"
    assert one_line("Käse 猫 🎉") == "Käse 猫 🎉"
    assert printable(f"\x1bu:{SECRET}@h") == "***@h"
