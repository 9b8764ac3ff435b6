"""Checks the names in local playlists.

An HLS playlist may name files on this machine; an ffconcat list may name files in its own folder or below. Neither may name
network addresses: a network playlist must be given by its own address. FFmpeg silently skips each entry of an HLS playlist
that it cannot or may not open, so the entries are checked before.
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
"""Most bytes of a line; no playlist has longer ones."""
PLAYLISTS = ("#EXT-X-STREAM-INF", "#EXT-X-MEDIA:", "#EXT-X-I-FRAME-STREAM-INF")
"""Tags that name other playlists, in the tag or on the next line (RFC 8216, 4.3.4)."""
DEPTH = 1
"""Levels of playlists below the first: a master playlist names playlists of segments. FFmpeg would read a playlist that
names itself forever."""


def check_playlist(path: Path, depth: int = DEPTH) -> None:
    """Check all names in a playlist; a file of any other kind passes.

    depth: levels of playlists that it may still name.

    :raises SourceError: if a name is not allowed or a named file does not exist; permanent.
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
    """The path of a file that an HLS playlist names.

    :raises SourceError: if it is not on the disk, or does not exist.
    """
    target = re.sub(r"^file:(//(?=/))?", "", name)
    if PROTOCOL.match(target):
        raise _refused(path, name, "a playlist on the disk may name files on the disk only")
    named = path.parent / target
    if not named.is_file():
        raise _refused(path, name, "there is no such file")
    return named


def _check_concat(path: Path, file: BinaryIO) -> None:
    """Check an ffconcat list. FFmpeg itself applies stricter rules; this check gives the reason in its message."""
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
