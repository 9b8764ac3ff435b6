"""The plan of a run, made before anything is opened: its streams, their options, and the places of their outputs."""

from __future__ import annotations

import glob
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from app.config import Settings, StreamEntry
from pipelines.errors import SourceError, UsageError, reason
from pipelines.media.local_files import try_to_write
from pipelines.redact import printable, redact_url
from pipelines.sinks.video import check_video_path
from pipelines.sources.address import PICTURE_SUFFIXES
from pipelines.sources.files.file import check_file
from pipelines.sources.files.images import animated, read_picture
from pipelines.sources.identify import check_mistyped, names_path
from pipelines.sources.stream_options import StreamOptions
from pipelines.sources.stream_spec import StreamSpec
from pipelines.sources.webcam import check_device

# fmt: off
VIDEOS = frozenset((
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg",
    ".mpeg", ".vob", ".wmv", ".asf", ".flv", ".3gp", ".ogv", ".mxf", ".mjpg", ".mjpeg",
    ".h264", ".264", ".h265", ".265", ".hevc", ".ivf", ".y4m", ".dv",
))
# fmt: on
LISTS = (".txt", ".streams")
OF_THE_RUN = ("budget_ms", "fit", "topk")
"""Options that the session and the model have for the run: a stream has a value only if it has its own."""
GIVE = "; give some whose names end as theirs do (.mp4, .mkv, .jpg, ...), or name a file itself"


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One stream of a run. found: it was not named itself but found in a folder or by a glob; output: its annotated video."""

    spec: StreamSpec
    found: bool = False
    output: Path | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def stored(self) -> bool:
        return self.spec.stored

    def named(self, name: str) -> StreamPlan:
        return replace(self, spec=replace(self.spec, name=name))


def plan(settings: Settings) -> list[StreamPlan]:
    """All streams with names and options of their own and their outputs.

    :raises UsageError: if a source or an output cannot be as it was asked for.
    """
    streams = [_entry(name, entry, settings) for name, entry in settings.streams.items()]
    options = stream_options(settings, {})
    for text in settings.sources:
        streams += [replace(s, spec=replace(s.spec, options=options)) for s in _expanded(text, set())]
    streams = _with_own_names(streams)
    return _with_outputs(streams, settings)


def stream_options(settings: Settings, overrides: Mapping[str, Any]) -> StreamOptions:
    """The values for one stream: a field has the setting of its name, without the unit. overrides: its own values, by name."""
    own = replace(settings, **overrides)
    values = {f.name: getattr(own, f.name.removesuffix("_s")) for f in fields(StreamOptions)}
    return StreamOptions(**values | {name: overrides.get(name) for name in OF_THE_RUN})


def _entry(name: str, entry: StreamEntry, settings: Settings) -> StreamPlan:
    """A stream of a YAML file."""
    found = _expanded(entry.source, set())
    if len(found) != 1:
        shown = redact_url(entry.source)
        raise UsageError(f"stream {name!r} must be one source, but {shown!r} is {len(found)}; name each as a stream")
    spec = found[0].spec
    options, credentials = stream_options(settings, entry.overrides), entry.credentials or spec.credentials
    return replace(found[0], spec=replace(spec, name=name, options=options, credentials=credentials))


def _expanded(text: str, inside: set[Path], folder: Path | None = None) -> list[StreamPlan]:
    """The streams that one SOURCE means. inside: list files that are being read. folder: where relative paths begin."""
    if not text.strip() or not names_path(text):
        return [StreamPlan(StreamSpec.of(None, text))]
    return _paths(text, inside, folder)


def _paths(text: str, inside: set[Path], folder: Path | None) -> list[StreamPlan]:
    given = text
    text = given if folder is None else str(folder / given)
    path = Path(text)
    if path.is_dir():
        streams = _folder(sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith(".")), path.name)
        if not streams:
            raise UsageError(f"no videos or pictures in the folder {text!r}{GIVE}")
        return streams
    if not path.exists():
        check_mistyped(given)
    if not path.exists() and glob.has_magic(text):
        found = sorted(Path(p) for p in glob.glob(text, recursive=True))
        streams = _folder([p for p in found if p.is_file()], path.parent.name)
        if not streams:
            raise UsageError(f"no videos or pictures match {text!r}{GIVE}")
        return streams
    if path.suffix.lower() in LISTS and path.exists():
        return list(_list(path, inside))
    return [StreamPlan(StreamSpec.of(None, text))]


def _folder(paths: Iterable[Path], name: str) -> list[StreamPlan]:
    """Each video or animation is a stream, all pictures together are one. Files of other kinds are passed over."""
    paths = list(paths)
    films = {p for p in paths if p.suffix.lower() in VIDEOS or (p.suffix.lower() in PICTURE_SUFFIXES and animated(p))}
    streams = [StreamPlan(StreamSpec(p.stem, "file", str(p)), found=True) for p in paths if p in films]
    pictures = tuple(p for p in paths if p.suffix.lower() in PICTURE_SUFFIXES and p not in films)
    if pictures:
        spec = StreamSpec(name or "pictures", "images", str(pictures[0].parent), pictures)
        streams.append(StreamPlan(spec, found=True))
    return streams


def _list(path: Path, inside: set[Path]) -> Iterator[StreamPlan]:
    """One source a line; empty lines and comments are passed over. Paths are relative to the list."""
    here = path.resolve()
    if here in inside:
        raise UsageError(f"the list {str(path)!r} contains itself; take out the line that names it")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the list {str(path)!r}: {reason(error)}; give a text file that may be read") from None
    except UnicodeDecodeError:
        raise UsageError(f"the list {str(path)!r} is not UTF-8 text; save it as UTF-8, one source a line") from None
    entries = {k: entry for k, line in enumerate(lines, 1) if (entry := _without_comment(line.strip(), path.parent))}
    if not entries:
        raise UsageError(f"the list {str(path)!r} names no source; write one a line, without a # before it")
    for k, entry in entries.items():
        try:
            yield from _expanded(entry, inside | {here}, path.parent)
        except UsageError as error:
            raise UsageError(f"{error} (line {k} of {str(path)!r})") from None


def _without_comment(line: str, folder: Path) -> str:
    """A line without its comment. A comment begins with # at the start or after a blank, unless a file has that whole name."""
    if line.startswith("#"):
        return ""
    if "://" not in line and (folder / line).exists():
        return line
    return re.split(r"\s#", line)[0].strip()


def _with_own_names(streams: list[StreamPlan]) -> list[StreamPlan]:
    """Equal names get numbers, since a name is a stream's identity in every output."""
    taken: set[str] = set()
    result = []
    for stream in streams:
        # A name that is no valid UTF-8 must not spoil JSON, nor one with control characters the terminal.
        base = printable(stream.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken.add(name)
        result.append(stream.named(name))
    return result


def _with_outputs(streams: list[StreamPlan], settings: Settings) -> list[StreamPlan]:
    if settings.output is not None:
        streams = [replace(s, output=p) for s, p in zip(streams, _videos(streams, Path(settings.output)), strict=True)]
    _check_outputs(streams, settings)
    return streams


def _videos(streams: list[StreamPlan], output: Path) -> list[Path]:
    if output.is_dir():
        return [output / f"{_file_name(s)}.mp4" for s in streams]
    if not output.suffix:
        raise UsageError(
            f"no folder {str(output)!r} for the annotated videos; make it first, or name a file such as {output}.mp4"
        )
    if len(streams) > 1:
        raise UsageError(f"{len(streams)} streams cannot go into one file {str(output)!r}; give an existing folder to --output")
    return [output]


def _file_name(stream: StreamPlan) -> str:
    return stream.name.replace("/", "-").replace("\0", "-")


def _check_outputs(streams: list[StreamPlan], settings: Settings) -> None:
    """:raises UsageError: if an output has no folder, is another output or a source, or has a format that is not written."""
    texts = [Path(p) for p in (settings.jsonl, settings.report) if p not in (None, "-")]
    for path in texts:
        try:
            try_to_write(path)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"cannot write {str(path)!r}: {reason(error)}; give a file in a folder that exists and can be written"
            ) from None
    videos = [s.output for s in streams if s.output is not None]
    for video in videos:
        check_video_path(video)
    if settings.jsonl == settings.report == "-":
        raise UsageError("two outputs would be written to standard output; give --jsonl or --report a file")
    sources = {_identity(Path(s.spec.address)) for s in streams if s.spec.kind == "file"}
    sources |= {_identity(p) for s in streams for p in s.spec.pictures}
    read = [*settings.sources, settings.model, settings.labels, settings.config]
    sources |= {_identity(Path(text)) for text in read if text and Path(text).is_file()}
    seen: set[object] = set()
    for path in [*texts, *videos]:
        real = _identity(path)
        if real in seen:
            raise UsageError(f"two outputs would be written to {str(path)!r}; give each a name of its own")
        if real in sources:
            raise UsageError(f"the output {str(path)!r} is one of the sources or files that are read; give it another name")
        seen.add(real)


def _identity(path: Path) -> object:
    """Equal for two paths of one file: links count."""
    try:
        there = path.stat()
    except OSError:
        return path.resolve()
    return there.st_dev, there.st_ino


def check_sources(streams: Sequence[StreamPlan]) -> dict[str, str]:
    """Streams that cannot be opened, by name, with the reason, as far as that shows before anything is loaded.

    Of the files of folders only as many are tried as it takes to find a good one: there may be thousands.
    """
    dead: dict[str, str] = {}
    found_good = False
    for stream in streams:
        if stream.found and found_good:
            continue
        try:
            _check(stream)
            found_good = True
        except SourceError as error:
            dead[stream.name] = str(error)
    return dead


def _check(stream: StreamPlan) -> None:
    if stream.spec.kind == "file":
        check_file(Path(stream.spec.address))
    elif stream.spec.kind == "device":
        check_device(Path(stream.spec.address))
    elif stream.spec.kind == "images" and len(stream.spec.pictures) == 1:
        read_picture(stream.spec.pictures[0], threading.Event())
