"""Playlists on the disk: what they may name.

An HLS playlist may name files on this machine, an ffconcat list files beside itself or in folders below: nothing on the
network, where it can be given as an address itself. FFmpeg leaves out, without a word, what an HLS playlist names and it
cannot or may not open: so this is looked at before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import SourceError, reason
from pipelines.redact import redact_url

HLS, CONCAT = b"#EXTM3U", b"ffconcat version"
PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|subfile,")
ATTRIBUTE = re.compile(r'URI="([^"]*)"')
LINE = 1 << 16
"""Bytes of a line; a longer one is no playlist's."""
PLAYLISTS = ("#EXT-X-STREAM-INF", "#EXT-X-MEDIA:", "#EXT-X-I-FRAME-STREAM-INF")
"""Behind these stand playlists (RFC 8216, 4.3.4)."""
DEPTH = 1
"""A playlist of playlists names those of segments. With one that names itself FFmpeg is busy for ever."""


def check_playlist(path: Path, depth: int = DEPTH) -> None:
    """What is no playlist is passed over.

    :raises SourceError: if it names what it may not, or a file that is not there; permanent.
    """
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
            file.seek(0)
            if head.startswith(HLS):
                _check_hls(path, file, depth)
            elif head.startswith(CONCAT):
                _check_concat(path, file)
    except OSError as error:
        raise SourceError(f"cannot read {str(path)!r}: {reason(error)}", permanent=True) from None


def _check_hls(path: Path, file: BinaryIO, depth: int) -> None:
    announced = False
    for line in _lines(file):
        is_tag = line.startswith("#")
        is_playlist = line.startswith(PLAYLISTS) or announced
        announced = line.startswith(PLAYLISTS) or (announced and (is_tag or not line))
        for name in filter(None, ATTRIBUTE.findall(line) if is_tag else [line]):
            named = _named(path, name)
            if is_playlist and not depth:
                raise _refused(path, name, "a playlist that is named by one of playlists may name segments only")
            if is_playlist:
                check_playlist(named, depth - 1)


def _named(path: Path, name: str) -> Path:
    """The file that an HLS playlist names."""
    target = re.sub(r"^file:(//(?=/))?", "", name)
    if PROTOCOL.match(target):
        raise _refused(path, name, "a playlist on the disk may name files on the disk only")
    named = path.parent / target
    if not named.is_file():
        raise _refused(path, name, "there is no such file")
    return named


def _check_concat(path: Path, file: BinaryIO) -> None:
    """FFmpeg checks the names by rules that are stricter still; this says why."""
    for line in _lines(file):
        word, _, name = line.partition(" ")
        name = name.strip().strip("'\"")
        if word == "file" and (PROTOCOL.match(name) or name.startswith("/") or ".." in name.split("/")):
            raise _refused(path, name, "an ffconcat list may name files beside it or in folders below only")


def _lines(file: BinaryIO) -> Iterator[str]:
    while line := file.readline(LINE):
        yield line.decode("utf-8", "surrogateescape").strip()


def _refused(path: Path, name: str, why: str) -> SourceError:
    return SourceError(f"the playlist {str(path)!r} names {redact_url(name)[:200]!r}: {why}", permanent=True)
