"""The YAML file of `--config`: settings by the names of the flags, and streams that may have their own values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from app.config import Settings, StreamEntry, per_stream
from app.options import check_value, declared, of_type, unknown
from pipelines.credentials import Credentials
from pipelines.errors import UsageError, reason

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
EXAMPLE = "streams: {door: {source: rtsp://camera/door}}"


def read(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the file, by the names of `Settings`.

    :raises UsageError: if it cannot be read, or a key or a value is wrong.
    """
    content = _filled(_loaded(path), environ, path)
    if not isinstance(content, dict):
        raise UsageError(f"the config {str(path)!r} must be a map of settings, e.g. {EXAMPLE}")
    values: dict[str, Any] = {}
    for key, value in content.items():
        name, typed = _setting(str(key), value, path)
        if name in values:
            raise UsageError(f"the config {str(path)!r} names {name.replace('_', '-')!r} twice; leave one out")
        values[name] = typed
    return values


class WrittenInt(int):
    """A number with its text in the file. YAML reads 0123 as 83 and 12:30 as 750, which a password must not become."""

    written: str

    def __str__(self) -> str:
        return self.written


def _written(loader: yaml.SafeLoader, node: Any) -> WrittenInt:
    number = WrittenInt(loader.construct_yaml_int(node))
    number.written = node.value
    return number


def _loaded(path: Path) -> Any:
    class Loader(yaml.SafeLoader):
        """A name that stands twice in a map is an error: the second would silently replace the first."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key, _ in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise UsageError(f"the config {str(path)!r} names {key.value!r} twice, again in line {line}; rename one")
                seen.add(key.value if isinstance(key.value, str) else id(key))
            return super().construct_mapping(node, deep)

    Loader.add_constructor("tag:yaml.org,2002:int", _written)
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise UsageError(f"cannot read the config {str(path)!r}: {reason(error)}") from None
    except RecursionError:
        raise _nested(path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # An open quote is noticed only at the end of the file: its beginning is the place to look at.
        quoted = "quoted" in (getattr(error, "context", None) or "")
        where = getattr(error, "context_mark" if quoted else "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError(f"the config {str(path)!r} is not valid YAML{line}; see docs/cli.md for an example") from None


def _nested(path: Path) -> UsageError:
    return UsageError(f"the config {str(path)!r} is nested too deeply, or contains itself")


def _filled(value: Any, environ: Mapping[str, str], path: Path) -> Any:
    """The content with every `${NAME}` in a text replaced by the environment's value."""
    try:
        return _fill(value, environ, path)
    except RecursionError:
        raise _nested(path) from None


def _fill(value: Any, environ: Mapping[str, str], path: Path) -> Any:
    if isinstance(value, str):

        def fill(match: re.Match[str]) -> str:
            if match[1] not in environ:
                raise UsageError(f"the config {str(path)!r} uses ${{{match[1]}}}, which is not set in the environment")
            return environ[match[1]]

        return VARIABLE.sub(fill, value)
    if isinstance(value, dict):
        return {k: _fill(v, environ, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, environ, path) for v in value]
    return value


def _setting(key: str, value: Any, path: Path) -> tuple[str, Any]:
    """Name and value of one entry at the top of the file."""
    name, place = key.replace("-", "_"), repr(str(path))
    if name == "source":
        return "sources", _sources(key, [value] if isinstance(value, str) else value, place)
    if name == "sources":
        return name, _sources(key, value, place)
    if name == "streams":
        return name, dict(_streams(value, place))
    found = declared(Settings).get(name)
    if found is None or name == "config":
        names = ("source", "sources", "streams", *(d.key for d in declared(Settings).values() if d.name != "config"))
        raise unknown(key, names, f"the config {place}")
    return name, of_type(found, value, place)


def _sources(key: str, value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str | int) for v in value):
        raise UsageError(f"{key!r} in {place} must be a list of sources")
    return tuple(str(v) for v in value)


def _streams(value: Any, place: str) -> Iterator[tuple[str, StreamEntry]]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"'streams' in {place} must be a map of names, e.g. {EXAMPLE}")
    for name, entry in value.items():
        if not str(name).strip():
            raise UsageError(f"'streams' in {place} has a stream without a name; give it one, e.g. {EXAMPLE}")
        yield str(name), _stream(entry, f"stream {str(name)!r} in {place}")


def _stream(entry: Any, place: str) -> StreamEntry:
    if isinstance(entry, dict) and "source" not in entry and difflib.get_close_matches("source", map(str, entry), 1):
        raise unknown(difflib.get_close_matches("source", map(str, entry), 1)[0], ["source"], place)
    if not isinstance(entry, dict) or "source" not in entry:
        raise UsageError(f"{place} must have an entry 'source', and may have 'user' and 'password', e.g. {EXAMPLE}")
    texts = {key: entry[key] for key in ("source", "user", "password") if key in entry}
    if not all(isinstance(v, str | int) and not isinstance(v, bool) for v in texts.values()):
        raise UsageError(f"the entries of {place} must be texts; quote them")
    overrides: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in texts:
            name, typed = _override(str(key), value, place)
            if name in overrides:
                raise UsageError(f"{place} names {name.replace('_', '-')!r} twice; leave one out")
            overrides[name] = typed
    source = str(texts["source"])
    return StreamEntry(source, _credentials(texts, source, place), overrides)


def _override(key: str, value: Any, place: str) -> tuple[str, Any]:
    """A stream's own value of an option."""
    name, own = key.replace("-", "_"), per_stream()
    if name not in own:
        if name in declared(Settings):
            raise UsageError(
                f"{place} has a setting {key!r}, which is the same for all streams; write it at the top of the file"
            )
        raise unknown(key, ["source", "user", "password", *(n.replace("_", "-") for n in own)], place)
    found = declared(Settings)[name]
    typed = of_type(found, value, place)
    try:
        check_value(found, typed)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    return name, typed


def _credentials(texts: Mapping[str, Any], source: str, place: str) -> Credentials | None:
    if "user" not in texts:
        if "password" in texts:
            raise UsageError(f"{place} has a password and no user; give 'user', too")
        return None
    if not re.match(r"(?i)(rtsps?|https?|rtmp)://", source):
        raise UsageError(f"{place} has a user, which only an rtsp://, http:// or rtmp:// address takes; leave 'user' out")
    if "@" in source:
        raise UsageError(f"{place} has a user in its source and another one beside it; leave one of them out")
    return Credentials(str(texts["user"]), str(texts.get("password", "")))
