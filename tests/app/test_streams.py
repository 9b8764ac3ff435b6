"""The plan of a run: sources to streams, streams to names, names to outputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.config import Settings, StreamEntry
from app.streams import plan
from pipelines.credentials import Credentials
from pipelines.errors import UsageError
from pipelines.sources.address import RTSP, SCHEMES, split_credentials, with_credentials

SECRET = "geheim"


def streams(*sources: str, **more: object) -> list[tuple[str, str, str]]:
    """Name, kind and address of each stream."""
    return [(s.name, s.spec.kind, s.spec.address) for s in plan(Settings(sources=sources, **more))]  # type: ignore[arg-type]


def refused(*sources: str, **more: object) -> str:
    """The one line that the sources are refused with."""
    with pytest.raises(UsageError) as caught:
        plan(Settings(sources=sources, **more))  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(autouse=True)
def _files(place: Path) -> None:
    for name in ("a.mp4", "b.MKV", "notes.md", "p1.jpg", "p2.PNG", ".hidden.mp4"):
        path = place / "folder" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("clip.mp4", ("clip", "file", "clip.mp4")),
        ("a.b/clip 1.mp4", ("clip 1", "file", "a.b/clip 1.mp4")),
        ("0", ("video0", "device", "/dev/video0")),
        ("/dev/video3", ("video3", "device", "/dev/video3")),
        ("rtsp://cam/door", ("cam-door", "rtsp", "rtsp://cam/door")),
        ("RTSP://cam:8554/door", ("cam-door", "rtsp", "rtsp://cam:8554/door")),
        (f"rtsp://u:{SECRET}@cam/a/b", ("cam-a-b", "rtsp", "rtsp://cam/a/b")),
        (f"rtmp://cam/live/{SECRET}", ("cam-live", "network", f"rtmp://cam/live/{SECRET}")),
        (f"rtmp://cam/live/{SECRET}?a/b", ("cam-live", "network", f"rtmp://cam/live/{SECRET}?a/b")),
        ("https://host/x.mp4?token=1", ("host-x.mp4", "network", "https://host/x.mp4?token=1")),
        ("synthetic:64x48@25", ("synthetic-64x48@25", "synthetic", "synthetic:64x48@25")),
        ("one.jpg", ("one", "images", "one.jpg")),
    ],
)
def test_one_source(text: str, stream: tuple[str, str, str]) -> None:
    assert streams(text) == [stream]


@pytest.mark.parametrize(
    ("text", "address", "login"),
    [
        ("rtsp://cam/a", "rtsp://cam/a", None),
        ("rtsp://u:p%40s@cam:554/a@b", None, None),
        ("rtsp://u:p%40s@cam:554/a?x=1", "rtsp://cam:554/a?x=1", Credentials("u", "p@s")),
        ("http://u@cam/x", "http://cam/x", Credentials("u")),
        ("HTTPS://a%20b:@[::1]:80/x", "https://[::1]:80/x", Credentials("a b")),
    ],
)
def test_user_and_password_leave_the_address(text: str, address: str | None, login: Credentials | None) -> None:
    if address is None:
        assert "is not a valid address" in refused(text)
        return
    spec = plan(Settings(sources=(text,)))[0].spec
    assert (spec.address, spec.credentials) == (address, login)
    assert "p@s" not in repr(spec)
    assert with_credentials(address, login).count("@") == (login is not None)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"user=a_password={SECRET}_channel=1.sdp", "cam-user_password_channel-1.sdp"),
        (f"tcp/av0_0&user=admin&password={SECRET}", "cam-tcp-av0_0-user-password"),
        (f"user=admin&password={SECRET}&channel=1", "cam-user-password-channel-1"),
        (f"?loginuse=admin&loginpas={SECRET}", "cam"),
        (f"v.cgi?login=admin:{SECRET}", "cam-v.cgi"),
        (f"live;pass={SECRET}", "cam-live-pass"),
        (f"admin:{SECRET}/s", "cam-s"),
        (f"11?{SECRET}", "cam-11"),
        ("Streaming/Channels/101", "cam-Streaming-Channels-101"),
        ("cam/realmonitor?channel=1&subtype=0", "cam-cam-realmonitor"),
        ("a/trackID=1", "cam-a-trackID-1"),
    ],
)
def test_a_secret_in_a_path_is_in_no_name(place: Path, path: str, name: str) -> None:
    """Nor in the output file's; the camera is asked for all of it."""
    (place / "out").mkdir()
    made = plan(Settings(sources=(f"rtsp://cam:554/{path}",), output="out"))
    assert [(s.name, s.spec.address, str(s.output)) for s in made] == [(name, f"rtsp://cam:554/{path}", f"out/{name}.mp4")]


def test_a_folder_is_its_videos_and_one_stream_of_pictures() -> None:
    found = plan(Settings(sources=("folder",)))
    assert [(s.name, s.spec.kind, s.found) for s in found] == [
        ("a", "file", True),
        ("b", "file", True),
        ("folder", "images", True),
    ]
    assert [p.name for p in found[2].spec.pictures] == ["p1.jpg", "p2.PNG"]


def test_a_glob() -> None:
    assert streams("folder/*.mp4") == [("a", "file", "folder/a.mp4")]
    assert [s[:2] for s in streams("folder/p*")] == [("folder", "images")]
    assert [s[0] for s in streams("**/*.MKV")] == ["b"]


def test_a_name_that_looks_like_a_glob_is_a_file_if_it_is_there(place: Path) -> None:
    (place / "x[1].mp4").touch()
    assert streams("x[1].mp4") == [("x[1]", "file", "x[1].mp4")]


def test_a_list_is_relative_to_itself(place: Path) -> None:
    (place / "folder/cams.txt").write_text("\ufeffa.mp4\n\n# a comment\nrtsp://cam/door\n  b.MKV  \n", encoding="utf-8")
    (place / "all.streams").write_text(f"folder/cams.txt\n{place}/folder/a.mp4\n")
    assert streams("all.streams") == [
        ("a", "file", "folder/a.mp4"),
        ("cam-door", "rtsp", "rtsp://cam/door"),
        ("b", "file", "folder/b.MKV"),
        ("a-2", "file", f"{place}/folder/a.mp4"),
    ]


def test_comments_in_a_list(place: Path) -> None:
    (place / "clip #3.mp4").touch()
    (place / "cams.txt").write_text("rtsp://cam/door # the door\n0\t# desk\nclip #3.mp4\nrtsp://cam/a#b\n  # all\n")
    assert [s[2] for s in streams("cams.txt")] == ["rtsp://cam/door", "/dev/video0", "clip #3.mp4", "rtsp://cam/a#b"]


def test_a_name_with_control_characters_moves_no_cursor() -> None:
    assert [s.name for s in plan(Settings(sources=("a\x1bc\nb.mp4",)))] == ["a\\x1bc\\nb"]


def test_equal_names_get_numbers() -> None:
    names = [s[0] for s in streams("x/a.mp4", "y/a.mp4", "z/a-2.mp4", "a.mp4")]
    assert len(set(names)) == 4
    assert names[:2] == ["a", "a-2"]


def test_a_name_that_is_no_utf8_does_not_spoil_the_outputs() -> None:
    name = os.fsdecode(b"caf\xe9.mp4")
    assert [s.name for s in plan(Settings(sources=(name,)))] == ["caf\ufffd"]


def test_outputs_of_several_streams(place: Path) -> None:
    (place / "out").mkdir()
    made = plan(Settings(sources=("x/a.mp4", "y/a.mp4"), output="out"))
    assert [str(s.output) for s in made] == ["out/a.mp4", "out/a-2.mp4"]


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("foo://bar", ["'foo://bar'", "allowed", "rtsp://"]),
            ("rtsp://", ["not a valid address"]),
            ("rtsp://cam:port/x", ["not a valid address"]),
            ("synthetic:big", ["synthetic:big", "synthetic:WxH@FPS"]),
            ("synthetic:64x64@0", ["synthetic:WxH@FPS"]),
            ("none*.mp4", ["none*.mp4", "no videos or pictures"]),
            ("empty", ["empty", "no videos or pictures"]),
        ],
    )
    def test_source(self, place: Path, text: str, words: list[str]) -> None:
        (place / "empty").mkdir()
        message = refused(text)
        assert all(word in message for word in words), message

    @pytest.mark.parametrize("sign", "@#?/^[ ")
    def test_special_signs_in_a_password(self, sign: str) -> None:
        """Such an address means something else, or nothing: say how to write it, and never show half of the password."""
        message = refused(f"rtsp://u:{SECRET}{sign}{SECRET}@127.0.0.1/cam")
        assert "percent-encode the password" in message
        assert SECRET not in message

    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            ("rtsp://u:{}", "rtsp://***"),
            ("rtsp://admin:{}/stream1", "rtsp://***/stream1"),
            ("rtsp://admin:{}:127.0.0.1/s", "rtsp://***/s"),
            ("rtsp://user=admin&password={}", "rtsp://user=***&password=***"),
        ],
    )
    def test_a_host_that_was_forgotten(self, text: str, seen: str) -> None:
        message = refused(text.format(SECRET))
        assert message.startswith(f"'{seen}' is not a valid address")
        assert SECRET not in message

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            (" rtsp://u:{}@cam/x", "rtsp://***@cam/x"),
            ("- rtsp://u:{}@cam/x", "rtsp://***@cam/x"),
            ("'rtsp://u:{}@cam/x'", "rtsp://***@cam/x"),
            ("rtsp:/u:{}@cam/x", "rtsp://***@cam/x"),
            ("rtsp//u:{}@cam/x", "rtsp://***@cam/x"),
            ("HTTP:u:{}@cam/x", "http://***@cam/x"),
            ("u:{}@cam/x", "rtsp://***@cam/x"),
            ("rtsp:/cam/x?a=*", "rtsp://cam/x?a=*"),
        ],
    )
    def test_an_address_that_was_mistyped(self, place: Path, text: str, meant: str) -> None:
        """The message names the right form, also for a line of a list."""
        message = refused(text.format(SECRET))
        assert f"write '{meant}'" in message
        assert SECRET not in message
        (place / "cams.txt").write_text(text.format(SECRET) + "\n")
        assert text[0] == " " or f"write '{meant}'" in refused("cams.txt")

    @pytest.mark.parametrize("scheme", RTSP + SCHEMES)
    def test_every_scheme_that_is_known_is_named_and_known_when_mistyped(
        self, scheme: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pipelines.sources.identify.speaks", lambda scheme: True)
        assert streams(f"{scheme}://cam/x/y")[0][1] == ("rtsp" if scheme in RTSP else "network")
        assert f"{scheme}://" in refused("foo://cam/x")
        assert f"write '{scheme}://cam'" in refused(f"{scheme}:/cam")

    def test_a_protocol_that_ffmpeg_was_built_without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipelines.sources.identify.speaks", lambda scheme: scheme != "srt")
        assert "without srt://" in refused(f"srt://u:{SECRET}@cam/x")
        assert streams("udp://cam:5000")[0][1] == "network"

    def test_a_blank_in_an_address(self) -> None:
        assert "holds a blank" in refused("rtsp://cam/x y")

    def test_a_file_that_is_there_is_no_address(self, place: Path) -> None:
        (place / "u:p@cam.mp4").touch()
        assert [s[1] for s in streams("u:p@cam.mp4")] == ["file"]
        (place / "folder/u:p@cam.mp4").touch()
        (place / "folder/cams.txt").write_text("u:p@cam.mp4\n")
        assert [s[1:] for s in streams("folder/cams.txt")] == [("file", "folder/u:p@cam.mp4")]

    def test_percent_encoded_they_are_fine(self) -> None:
        assert streams("rtsp://u:p%40s%23s%3Aw%2F%25%5E!@cam/x")[0][0] == "cam-x"

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"# nothing\n", ["names no source"]),
            (b"\xff\xfe\x00", ["not UTF-8"]),
            (b"loop.txt\n", ["contains itself"]),
            (b"other.txt\n", ["contains itself"]),
        ],
    )
    def test_list(self, place: Path, content: bytes, words: list[str]) -> None:
        (place / "loop.txt").write_bytes(content)
        (place / "other.txt").write_text("loop.txt\n")
        message = refused("loop.txt")
        assert all(word in message for word in words), message

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"output": "nowhere/o.mp4"}, ["nowhere/o.mp4", "folder that exists"]),
            ({"output": "nowhere"}, ["no folder 'nowhere'", "make it first"]),
            ({"output": "o.avi"}, ["'.avi'", ".mp4, .m4v, .mov, .mkv, .ts"]),
            ({"output": "o.webm"}, ["'.webm'", ".mp4, .m4v, .mov, .mkv, .ts"]),
            ({"output": "folder/a.mp4"}, ["one of the sources", "another name"]),
            ({"output": "./folder/../folder/a.mp4"}, ["one of the sources"]),
            ({"output": "link.mp4"}, ["one of the sources"]),
            ({"jsonl": "folder/a.mp4"}, ["one of the sources"]),
            ({"jsonl": "nowhere/o.jsonl"}, ["nowhere/o.jsonl", "folder that exists"]),
            ({"jsonl": "folder"}, ["'folder'", "it is a folder"]),
            ({"jsonl": "/proc/o.jsonl"}, ["'/proc/o.jsonl'", "can be written"]),
            ({"report": "nowhere/r.json"}, ["nowhere/r.json"]),
            ({"report": "/proc/r.json"}, ["'/proc/r.json'", "can be written"]),
            ({"jsonl": "x.json", "report": "x.json"}, ["two outputs", "x.json"]),
            ({"jsonl": "x.json", "report": "./x.json"}, ["two outputs"]),
            ({"output": "x.mp4", "report": "x.mp4"}, ["two outputs", "x.mp4"]),
        ],
    )
    def test_output(self, place: Path, more: dict[str, str], words: list[str]) -> None:
        (place / "link.mp4").symlink_to("folder/a.mp4")
        before = sorted(place.rglob("*"))
        message = refused("folder/a.mp4", **more)
        assert all(word in message for word in words), message
        assert sorted(place.rglob("*")) == before

    def test_hard_link_to_the_source(self, place: Path) -> None:
        os.link(place / "folder/a.mp4", place / "same.mp4")
        assert "one of the sources" in refused("folder/a.mp4", output="same.mp4")

    def test_two_standard_outputs(self) -> None:
        """Lines and a report in one stream are neither."""
        assert "two outputs" in refused("folder/a.mp4", jsonl="-", report="-")

    def test_two_streams_into_one_file(self) -> None:
        assert "2 streams cannot go into one file 'o.mp4'" in refused("x.mp4", "y.mp4", output="o.mp4")

    def test_a_source_that_an_output_of_another_stream_would_overwrite(self, place: Path) -> None:
        assert "one of the sources" in refused("folder/a.mp4", "folder/b.MKV", output="folder")

    def test_a_line_of_a_list(self, place: Path) -> None:
        (place / "inner.txt").write_text("# cameras\nrtps://cam/door\n")
        (place / "outer.txt").write_text("inner.txt\n")
        with pytest.raises(UsageError, match=r"rtps.*\(line 2 of 'inner.txt'\) \(line 1 of 'outer.txt'\)"):
            plan(Settings(sources=("outer.txt",)))

    def test_a_stream_of_the_config_must_be_one_source(self) -> None:
        with pytest.raises(UsageError, match="'door' must be one source"):
            plan(Settings(streams={"door": StreamEntry("folder")}))


@pytest.mark.parametrize(
    ("text", "address", "credentials"),
    [
        ("rtsp://u:p%40s@cam/x?a=1", "rtsp://cam/x?a=1", Credentials("u", "p@s")),
        ("http://u@cam:80/x", "http://cam:80/x", Credentials("u")),
        ("rtsp://u:%E9@cam/x", "rtsp://cam/x", Credentials("u", "\udce9")),
        ("udp://@239.1.2.3:5000", "udp://@239.1.2.3:5000", None),
        ("rtsp://[fe80::1]:554/x", "rtsp://[fe80::1]:554/x", None),
    ],
)
def test_user_and_password_leave_the_address_and_come_back_for_ffmpeg(
    text: str, address: str, credentials: Credentials | None
) -> None:
    assert split_credentials(text) == (address, credentials)
    assert with_credentials(address, credentials) == text
