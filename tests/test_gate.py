"""No password passes, however its address was mistyped, and nothing moves a terminal's cursor."""

from __future__ import annotations

import pytest

from pipelines.gate import hidden, hidden_in, one_line, shown, visible

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


@pytest.mark.parametrize("address", SLIPS)
def test_a_password_in_an_address(address: str) -> None:
    assert SECRET not in shown(address)
    assert "host" in shown(address)


@pytest.mark.parametrize("address", [*SLIPS, f"rtsp://bob:my {SECRET}@host/cam", f"bob:it's {SECRET}@host"])
@pytest.mark.parametrize("sentence", ["no such file: {!r}; give another", "cannot read {!r}"])
def test_a_password_in_a_sentence_that_quotes_the_address(address: str, sentence: str) -> None:
    assert SECRET not in hidden(sentence.format(address))


@pytest.mark.parametrize("address", SLIPS)
def test_a_password_in_a_sentence(address: str) -> None:
    text = hidden(f"door: {address}: Connection refused")
    assert SECRET not in text
    assert text.startswith("door: ")
    assert text.endswith("Connection refused")
    assert hidden(text) == text


@pytest.mark.parametrize(
    "text",
    ["synthetic:64x48@25", "/tmp/a b@c.mp4", "x@2x.png", "rtsp://host:554/cam?channel=1", "rtmp://host"],
)
def test_what_holds_none_stays(text: str) -> None:
    assert shown(text) == text == hidden(text)
    assert hidden(f"the camera's: {text}, it's at 5 @ 3") == f"the camera's: {text}, it's at 5 @ 3"


def test_in_all_that_json_holds() -> None:
    assert hidden_in({f"u:{SECRET}@h": [f"x u:{SECRET}@h", 1, None, 0.5, True]}) == {"***@h": ["x ***@h", 1, None, 0.5, True]}


def test_control_characters_are_seen_and_do_nothing() -> None:
    assert one_line("a\x1b[2Jb\nc\x9bd") == "a\\x1b[2Jb\\nc\\x9bd"
    assert one_line("\u202egpj.exe") == "\\u202egpj.exe"
    assert one_line("Käse 猫 🎉") == "Käse 猫 🎉"
    assert visible(f"\x1bu:{SECRET}@h") == "***@h"
