"""Options, each declared once: parser, checks of flags and YAML, `--help` and docs/cli.md all come from the declaration.

An option is a field of a dataclass (`app.config.Settings`, `ServeOptions` of the service) made with `option(...)`. Its name and
its type are the field's; a field without an `Option` is no flag.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pipelines.errors import UsageError
from pipelines.redact import redact_url
from pipelines.sources.address import mistyped

T = TypeVar("T")
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    help: one line. shown: the default in words (None: the default itself, or nothing if it is None). metavar: the value's name.
    commands: the commands that have it, such as "run" or "bench files"; group: its heading in `--help`.
    choices (a Literal brings its own), pattern with `allowed`, above (exclusive), least, most: the values that are allowed.
    file: the path of a file, never an address; folder: the path of a folder. toggle: a bool has --NAME and --no-NAME.
    per_stream: a stream in YAML may have its own value.
    """

    help: str
    shown: str | None = None
    metavar: str | None = None
    commands: frozenset[str] = frozenset()
    group: str = ""
    choices: tuple[str, ...] | None = None
    pattern: str | None = None
    allowed: str | None = None
    above: float | None = None
    least: float | None = None
    most: float | None = None
    file: bool = False
    folder: bool = False
    toggle: bool = False
    per_stream: bool = False
    short: str | None = None


def option(default: Any, help: str, commands: Iterable[str], group: str, **more: Any) -> Any:
    """A dataclass field with its declaration."""
    return field(default=default, metadata={"option": Option(help, commands=frozenset(commands), group=group, **more)})


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with the name, type and default of its field. kind: type of its values; a value may be None if `default` is."""

    name: str
    kind: type
    default: Any
    option: Option

    @property
    def key(self) -> str:
        """The name in YAML."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return f"--{self.key}"

    @property
    def help(self) -> str:
        """The help line with the default."""
        shown = self.option.shown
        if shown is None and self.kind is not bool and self.default is not None:
            shown = f"{self.default:g}" if isinstance(self.default, float) else str(self.default)
        return (self.option.help + (f" ({shown})" if shown else "")).strip()


def declared(kind: type) -> Mapping[str, Declared]:
    """The options of a dataclass, by name, in the order of their fields."""
    return _declarations(kind)


@cache
def _declarations(kind: Any) -> dict[str, Declared]:
    found, hints = {}, get_type_hints(kind)
    for f in fields(kind):
        if "option" in f.metadata:
            default = None if f.default is MISSING else f.default
            type_, choices = _plain(hints[f.name])
            made: Option = f.metadata["option"]
            found[f.name] = Declared(f.name, type_, default, replace(made, choices=choices or made.choices))
    return found


def _plain(hint: Any) -> tuple[type, tuple[str, ...] | None]:
    """`float` of `float | None`; for a choice of texts `str`, and the texts."""
    inner = next((a for a in get_args(hint) if a is not NoneType), hint) if NoneType in get_args(hint) else hint
    return (str, get_args(inner)) if get_origin(inner) is Literal else (inner, None)


# The parser.


def add_options(parser: argparse.ArgumentParser, command: str, *kinds: type) -> None:
    """Add the options of dataclasses that a command has. Options that were not given are absent from the result."""
    groups: dict[str, Any] = {}
    for found in (d for kind in kinds for d in declared(kind).values()):
        if command in found.option.commands:
            group = found.option.group
            if group not in groups:
                groups[group] = parser.add_argument_group(group) if group else parser
            groups[group].add_argument(*_names(found), **_argument(found))


def _names(found: Declared) -> list[str]:
    return [*([found.option.short] if found.option.short else []), found.flag]


def _argument(found: Declared) -> dict[str, Any]:
    argument: dict[str, Any] = {"help": found.help, "default": argparse.SUPPRESS}
    if found.kind is bool:
        return argument | {"action": argparse.BooleanOptionalAction if found.option.toggle else "store_true"}
    if found.option.choices:
        return argument | {"choices": found.option.choices}
    if found.kind is not str:
        argument["type"] = found.kind
    return argument | {"metavar": found.option.metavar}


# The checks.


def check(options: Any) -> None:
    """:raises UsageError: if a value is not allowed; with the value and the allowed ones."""
    kind: Any = type(options)
    for found in declared(kind).values():
        check_value(found, getattr(options, found.name))


def taken(kind: type[T], flags: dict[str, Any]) -> T:
    """The options of a dataclass, taken out of the given flags, and checked.

    :raises UsageError: if a value is not allowed.
    """
    made = kind(**{name: flags.pop(name) for name in declared(kind) if name in flags})
    check(made)
    return made


def check_value(found: Declared, value: Any) -> None:
    """:raises UsageError: if the value is not allowed."""
    if value is None:
        return
    o = found.option
    if o.file or o.folder:
        _check_path(found.flag, value, "file" if o.file else "folder")
    if o.choices and value not in o.choices:
        raise UsageError(f"{found.flag} {value!r} is not known; allowed: {', '.join(o.choices)}")
    if o.pattern and not re.fullmatch(o.pattern, value):
        raise UsageError(f"{found.flag} {value!r} is not known; allowed: {o.allowed}")
    if found.kind in (int, float):
        check_number(found.flag, value, above=o.above, least=o.least, most=o.most)


def check_number(
    flag: str, value: float, *, above: float | None = None, least: float | None = None, most: float | None = None
) -> None:
    """:raises UsageError: if a number is not finite or out of its bounds."""
    if least is not None and most is not None:
        if not (math.isfinite(value) and least <= value <= most):
            raise UsageError(f"{flag} must be from {least:g} to {most:g}, got {value}")
        return
    if not math.isfinite(value):
        raise UsageError(f"{flag} must be a finite number, got {value}")
    if above is not None and value <= above:
        raise UsageError(f"{flag} must be more than {above:g}, got {value}")
    if least is not None and value < least:
        raise UsageError(f"{flag} must be {least:g} or more, got {value}")
    if most is not None and value > most:
        raise UsageError(f"{flag} must be at most {most:g}, got {value}")


def _check_path(flag: str, value: str, kind: str) -> None:
    if not value.strip():
        raise UsageError(f"{flag} is empty; name a {kind}, or leave it out (is a variable not set?)")
    if kind == "file" and ("://" in value or mistyped(value)) and not Path(value).exists():
        raise UsageError(f"{flag} {redact_url(value)!r} is an address; give a file, and the address as a SOURCE")


def of_type(found: Declared, value: Any, place: str) -> Any:
    """A value from YAML, if it has the option's type. place: the file, and the stream if it is one's own value.

    :raises UsageError: if it has not.
    """
    allowed = (int, float) if found.kind is float else found.kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and found.kind is not bool):
        raise UsageError(f"{found.key!r} in {place} must be {WORDS[found.kind]}")
    return value


def unknown(key: str, names: Iterable[str], place: str) -> UsageError:
    """An error about a name that is not known, with the nearest known one."""
    near = difflib.get_close_matches(key.replace("_", "-"), list(names), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UsageError(f"{place} has an unknown setting {key!r}{hint}")
