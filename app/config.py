"""Settings: defaults, then the YAML file, then the flags. One dataclass for `run`, with the names of the flags."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError, reason
from pipelines.predict.models.catalog import PROBE
from pipelines.redact import redact_url
from pipelines.sources.address import mistyped, with_credentials

log = logging.getLogger("watchline.config")

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that `watchline run` can be told. `streams`: sources by the name that was given to them."""

    sources: tuple[str, ...] = ()
    streams: Mapping[str, str] = dataclasses.field(default_factory=dict)
    model: str = "lite0"
    labels: str | None = None
    topk: int = 5
    device: str = "auto"
    engine: str = "auto"
    precision: str = "auto"
    fit: str = "crop"
    probe_ms_per_batch: float = 0.0
    probe_ms_per_frame: float = 0.0
    threads: int | None = None
    stagers: int | None = None
    """Threads that make pictures the model's input; None: a quarter of the cores, at least 1."""
    workers: int | None = None
    """Processes that run the model; None: this one does."""
    jobs: int | None = None
    budget_ms: float = 50.0
    max_batch: int = 32
    max_wait_ms: float | None = None
    realtime: bool = False
    loop: bool = False
    max_frames: int | None = None
    stride: int = 1
    max_fps: float | None = None
    deinterlace: bool = False
    show: bool | None = None
    output: str | None = None
    jsonl: str | None = None
    report: str | None = None
    rtsp_client: str = "auto"
    rtsp_transport: str = "tcp"
    tls_verify: bool = True
    camera_clock_trusted: bool = False
    open_timeout: float = 10.0
    read_timeout: float = 5.0
    reconnect: bool = True
    verbose: bool = False
    quiet: bool = False
    config: str | None = None
    """The file that these came from."""


CHOICES: Mapping[str, tuple[str, ...]] = {
    "engine": ("auto", "torch", "openvino"),
    "precision": ("auto", "fp32", "bf16", "int8"),
    "fit": ("crop", "squash", "pad"),
    "rtsp_client": ("auto", "native", "ffmpeg"),
    "rtsp_transport": ("tcp", "udp"),
}
POSITIVE = (
    "topk",
    "threads",
    "stagers",
    "workers",
    "jobs",
    "budget_ms",
    "max_batch",
    "max_frames",
    "stride",
    "max_fps",
    "open_timeout",
    "read_timeout",
)
NOT_NEGATIVE = ("max_wait_ms", "probe_ms_per_batch", "probe_ms_per_frame")
FILES = ("model", "labels", "output", "jsonl", "report")
MAX_BATCH = 128
MOST = {"max_batch": MAX_BATCH, "workers": 64, "threads": 1024, "stagers": 64}


def settings(
    flags: Mapping[str, Any], config: str | None, environ: Mapping[str, str] = os.environ, *, sourceless: bool = False
) -> Settings:
    """Put the settings together. `flags`: only those that were given. sourceless: for a command that takes no sources.

    :raises UsageError: if the file or a value is wrong; it says what was given and what is allowed.
    """
    _check_file("config", config)
    values = dict(_from_yaml(Path(config), environ)) if config is not None else {}
    if flags.get("sources"):
        given = values.pop("streams", None) or values.get("sources")
        if given:
            log.info("%d sources of %r are left out: those of the command line replace them", len(given), config)
    values.update(flags)
    result = Settings(**values, config=config)
    _check(result)
    if not sourceless and not result.sources and not result.streams:
        raise UsageError("no source was given; name a file, folder, camera address or device, or a --config with streams")
    return result


def _check(s: Settings) -> None:
    for name in FILES:
        _check_file(name, getattr(s, name))
    for name, allowed in CHOICES.items():
        value = getattr(s, name)
        if value not in allowed:
            raise UsageError(f"{_flag(name)} {value!r} is not known; allowed: {', '.join(allowed)}")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", s.device):
        raise UsageError(f"--device {s.device!r} is not known; allowed: auto, cpu, cuda, cuda:N")
    for name in POSITIVE:
        check_positive(name, getattr(s, name))
    for name in NOT_NEGATIVE:
        value = getattr(s, name)
        _check_finite(name, value)
        if value is not None and value < 0:
            raise UsageError(f"{_flag(name)} must be 0 or more, got {value}")
    for name, most in MOST.items():
        value = getattr(s, name)
        if value is not None and value > most:
            raise UsageError(f"{_flag(name)} must be at most {most}, got {value}")
    if s.model != PROBE and (s.probe_ms_per_batch or s.probe_ms_per_frame):
        raise UsageError(f"--probe-ms-per-batch and --probe-ms-per-frame are for --model probe only, not for {s.model!r}")
    if s.verbose and s.quiet:
        raise UsageError("--verbose and --quiet exclude each other; leave one out")
    if s.precision == "int8":
        _check_int8(s)


def _check_int8(s: Settings) -> None:
    if s.model == PROBE:
        raise UsageError("--precision int8 is for networks; --model probe computes nothing that could be rounded")
    if s.engine == "torch" or s.device.startswith("cuda"):
        given = "--engine torch" if s.engine == "torch" else f"--device {s.device}"
        raise UsageError(f"--precision int8 runs in OpenVINO on the CPU; leave out {given}, or take bf16 or fp32")


def _check_file(name: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise UsageError(f"{_flag(name)} is empty; name a file, or leave it out (is a variable not set?)")
    if value is not None and ("://" in value or mistyped(value)) and not Path(value).exists():
        raise UsageError(f"{_flag(name)} {redact_url(value)!r} is an address; give a file, and the address as a SOURCE")


def check_positive(name: str, value: float | None) -> None:
    """:raises UsageError: if a setting was given and is no finite number above 0."""
    _check_finite(name, value)
    if value is not None and value <= 0:
        raise UsageError(f"{_flag(name)} must be more than 0, got {value}")


def _check_finite(name: str, value: float | None) -> None:
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{_flag(name)} must be a finite number, got {value}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _from_yaml(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    import yaml

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

    try:
        content = _filled(yaml.load(path.read_text(encoding="utf-8"), Loader), environ, path)
    except OSError as error:
        raise UsageError(f"cannot read the config {str(path)!r}: {reason(error)}") from None
    except RecursionError:
        raise UsageError(f"the config {str(path)!r} is nested too deeply, or contains itself") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        raise UsageError(f"the config {str(path)!r} is not valid YAML{line}; see the README for an example") from None
    if not isinstance(content, dict):
        raise UsageError(f"the config {str(path)!r} must be a map of settings, e.g. {EXAMPLE}")
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name == "source":
            name, value = "sources", [value] if isinstance(value, str) else value
        _known(str(key), name, path)
        if name in values:
            raise UsageError(f"the config {str(path)!r} names {name.replace('_', '-')!r} twice; leave one out")
        values[name] = _typed(str(key), name, value, path)
    return values


def _known(key: str, name: str, path: Path) -> None:
    fields = [f.name for f in dataclasses.fields(Settings) if f.name != "config"]
    if name not in fields:
        near = difflib.get_close_matches(name, fields, 1)
        hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
        raise UsageError(f"the config {str(path)!r} has an unknown setting {key!r}{hint}")


def _filled(value: Any, environ: Mapping[str, str], path: Path) -> Any:
    """`${NAME}` in every text, replaced by the environment's value."""
    if isinstance(value, str):

        def fill(match: re.Match[str]) -> str:
            if match[1] not in environ:
                raise UsageError(f"the config {str(path)!r} uses ${{{match[1]}}}, which is not set in the environment")
            return environ[match[1]]

        return VARIABLE.sub(fill, value)
    if isinstance(value, dict):
        return {k: _filled(v, environ, path) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, environ, path) for v in value]
    return value


def _typed(key: str, name: str, value: Any, path: Path) -> Any:
    """A value from YAML in the type of its setting."""
    if name == "streams":
        return _streams(value, path)
    if name == "sources":
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, str | int) for v in value):
            raise UsageError(f"{key!r} in {str(path)!r} must be a list of sources")
        return tuple(str(v) for v in value)
    kind = str(next(f.type for f in dataclasses.fields(Settings) if f.name == name))
    wanted: type | tuple[type, ...] = str
    for word, types in (("bool", bool), ("int", int), ("float", (int, float))):
        if kind.startswith(word):
            wanted = types
            break
    if isinstance(value, bool) and wanted is not bool:
        value = None
    if not isinstance(value, wanted):
        raise UsageError(f"{key!r} in {str(path)!r} must be {KINDS[kind.split(' ')[0]]}")
    return value


KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
EXAMPLE = "streams: {door: {source: rtsp://camera/door}}"
ENTRIES = {"source", "user", "password"}


def _streams(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise UsageError(f"'streams' in {str(path)!r} must be a map of names, e.g. {EXAMPLE}")
    return {str(name): _stream(entry, f"stream {str(name)!r} in {str(path)!r}") for name, entry in value.items()}


def _stream(entry: Any, what: str) -> str:
    """The source of one stream, with the user and password that stand beside it put into its address."""
    if not isinstance(entry, dict) or "source" not in entry or not set(entry) <= ENTRIES:
        raise UsageError(f"{what} must have an entry 'source', and may have 'user' and 'password', e.g. {EXAMPLE}")
    if not all(isinstance(v, str | int) and not isinstance(v, bool) for v in entry.values()):
        raise UsageError(f"the entries of {what} must be texts; quote them")
    texts = {key: str(v) for key, v in entry.items()}
    source, user, password = texts["source"], texts.get("user"), texts.get("password")
    if user is None and password is None:
        return source
    if user is None:
        raise UsageError(f"{what} has a password and no user; give 'user', too")
    if not re.match(r"(?i)(rtsps?|https?)://[^@]+$", source):
        raise UsageError(
            f"{what} has a user beside a source that takes none; the source must be an rtsp:// or http:// address without one"
        )
    return with_credentials(source, user, password)
