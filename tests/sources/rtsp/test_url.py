"""RTSP URLs as people type them and servers send them."""

from __future__ import annotations

import pytest

from pipelines.credentials import Credentials
from pipelines.errors import SourceError
from pipelines.sources.rtsp.url import Target, display, join, parse

SECRET = "geh3im"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("rtsp://h", Target("rtsp", "h", 554, "rtsp://h/")),
        ("RTSP://Host/Cam", Target("rtsp", "host", 554, "rtsp://host/Cam")),
        ("rtsps://h/x", Target("rtsps", "h", 322, "rtsps://h/x")),
        ("rtsp://h:8554/a/b?c=d&e=f#g", Target("rtsp", "h", 8554, "rtsp://h:8554/a/b?c=d&e=f")),
        ("rtsp://h?c=d", Target("rtsp", "h", 554, "rtsp://h/?c=d")),
        ("rtsp://[::1]:99/x", Target("rtsp", "::1", 99, "rtsp://[::1]:99/x")),
        ("rtsp://[fe80::1%25eth0]/x", Target("rtsp", "fe80::1%eth0", 554, "rtsp://[fe80::1]/x")),
        ("rtsp://u:p%40s%23@h/x", Target("rtsp", "h", 554, "rtsp://h/x", Credentials("u", "p@s#"))),
        ("rtsp://u:a@b@h/x", Target("rtsp", "h", 554, "rtsp://h/x", Credentials("u", "a@b"))),
        ("rtsp://u:a:b@h/x", Target("rtsp", "h", 554, "rtsp://h/x", Credentials("u", "a:b"))),
        ("rtsp://u@h/x", Target("rtsp", "h", 554, "rtsp://h/x", Credentials("u", ""))),
        ("rtsp://:p@h/x", Target("rtsp", "h", 554, "rtsp://h/x", Credentials("", "p"))),
        ("rtsp://h/a b/\u00e4?\u4e2d", Target("rtsp", "h", 554, "rtsp://h/a%20b/%C3%A4?%E4%B8%AD")),
        ("rtsp://h/a%20b", Target("rtsp", "h", 554, "rtsp://h/a%20b")),
        ("rtsp://k\u00e4mera/x", Target("rtsp", "k\u00e4mera", 554, "rtsp://xn--kmera-gra/x")),
    ],
)
def test_urls(url: str, target: Target) -> None:
    assert parse(url) == target


@pytest.mark.parametrize(
    "place",
    [
        "h:0/x",
        "h:65536/x",
        "h:x/x",
        "h:-1/x",
        "/x",
        "",
        ":554/x",
        "[::1/x",
        "[nonsense]/x",
        "a b/x",
        "h/x\r\ny",
        "h/\0",
        "h/" + "x" * 5000,
        "\u00e4" * 80 + "/x",
    ],
)
@pytest.mark.parametrize("who", ["", f"user:{SECRET}@"])
def test_malformed(place: str, who: str) -> None:
    with pytest.raises(SourceError, match="malformed") as caught:
        parse(f"rtsp://{who}{place}")
    assert caught.value.permanent
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://h/x", "file:///etc/passwd", "/dev/video0", "", "rtspx://h", "rtsp:h/x", f"rtsp://u:{SECRET}/4@h"]
)
def test_other_addresses(url: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse(url)
    assert caught.value.permanent
    assert SECRET not in str(caught.value)


def test_a_user_cannot_bring_headers() -> None:
    with pytest.raises(SourceError, match="control"):
        parse("rtsp://u%0d%0aEvil:x@h/")


@pytest.mark.parametrize(
    "url",
    [
        f"rtsp://u:{SECRET}@h/x",
        f"rtsp:u:{SECRET}@h",
        f"rtsp://u:{'x' * 9000}{SECRET}@h",
        f"rtsp://u:{SECRET}\r\n@[h/x",
        SECRET,
        "rtsp://h/\x1b[2J\u202e\x85",
    ],
)
def test_what_people_see(url: str) -> None:
    assert SECRET not in display(url)
    assert len(display(url)) <= 200
    assert display(url).isprintable()


def test_a_repr_shows_no_credentials() -> None:
    assert SECRET not in repr(parse(f"rtsp://{SECRET}:{SECRET}@h/"))


@pytest.mark.parametrize(
    ("base", "location", "kept"),
    [
        ("rtsp://u:p@h/x", "rtsp://h/y", True),
        ("rtsp://u:p@h/x", "rtsp://H:8554/y", True),
        ("rtsp://u:p@h/x", "/y", True),
        ("rtsp://u:p@h/x", "rtsps://h/y", True),
        ("rtsps://u:p@h/x", "rtsps://h:99/y", True),
        ("rtsps://u:p@h/x", "rtsp://h/y", False),
        ("rtsp://u:p@h/x", "rtsp://other/y", False),
        ("rtsp://u:p@h/x", "rtsp://h.other/y", False),
    ],
)
def test_credentials_stay_with_their_host(base: str, location: str, kept: bool) -> None:
    assert (parse(base).moved(location).credentials is not None) == kept


def test_credentials_of_the_redirect_itself() -> None:
    assert parse("rtsp://u:p@h/x").moved("rtsp://a:b@other/").credentials == Credentials("a", "b")


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://h/x", "data:,x", "rtsp://", "rtsp://h:99999/", "ftp:x"])
def test_a_redirect_to_anything_else(location: str) -> None:
    with pytest.raises(SourceError, match="redirected") as caught:
        parse(f"rtsp://u:{SECRET}@h/x").moved(location)
    assert caught.value.permanent
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("rtsp://o/y", "rtsp://o/y"),
        ("/y?z", "rtsp://h:1/y?z"),
        ("y", "rtsp://h:1/a/y"),
        (" ", "rtsp://h:1/a/b"),
    ],
)
def test_join(reference: str, url: str) -> None:
    assert join("rtsp://h:1/a/b", reference) == url
