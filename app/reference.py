"""Prints docs/cli.md, the reference of all commands, options and YAML keys: `python -m app.reference > docs/cli.md`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from app.config import Settings
from app.flags import EXIT_CODES, SOURCES, parser
from app.options import WORDS, Declared, declared

HEAD = """# Command line and YAML

This page is generated from the declarations of the options: `python -m app.reference > docs/cli.md`.

{sources}.

```text
{codes}
```
"""
YAML = """## The file of `run --config`

The keys are the names of the flags of `watchline run` without the dashes. Flags win over the file, and sources on the
command line replace its streams. `${NAME}` in a text is replaced by the variable of the environment.

```yaml
model: lite0
budget-ms: 50
streams:
  door:
    source: rtsp://camera/door
    user: watch
    password: ${DOOR_PASSWORD}
    max-fps: 5
    rtsp-transport: udp
  yard: {source: rtsp://camera/yard, stride: 2, budget-ms: 100, fit: squash, topk: 3}
```

`source`, `user` and `password` belong to a stream. These options may stand in a stream, too; its value then replaces
the value of the run:

| key | value | meaning |
|---|---|---|
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD.format(sources=SOURCES, codes=EXIT_CODES)]
    parts += [section for name, command in _commands(parser(), "watchline") for section in _section(name, command)]
    rows = [f"| `{d.key}` | {_value(d)} | {_cell(d.help)} |" for d in declared(Settings).values() if d.option.per_stream]
    return "\n".join(parts) + "\n" + YAML + "\n".join(rows) + "\n"


def _commands(command: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands that do something, with their full names."""
    inner = [a for a in command._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield name, command
    for action in inner:
        for word, made in action.choices.items():
            yield from _commands(made, f"{name} {word}")


def _section(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `{name}`\n\n{command.description}\n"
    for group in command._action_groups:
        actions = [a for a in group._group_actions if a.dest != "help"]
        if not actions:
            continue
        title = f"**{group.title[0].upper()}{group.title[1:]}**\n\n" if group.title else ""
        rows = "\n".join(f"| {_names(a)} | {_cell(a.help or '')} |" for a in actions)
        yield f"{title}| option | meaning |\n|---|---|\n{rows}\n"


def _names(action: argparse.Action) -> str:
    """The flags of an option with its value, or the name of an argument."""
    if not action.option_strings:
        return f"`{action.metavar}`"
    value = f" {{{','.join(action.choices)}}}" if action.choices else f" {action.metavar}" if action.metavar else ""
    return ", ".join(f"`{flag}{value}`" for flag in action.option_strings).replace("|", "\\|")


def _cell(help: str) -> str:
    return help.replace("|", "\\|").replace("%%", "%").replace("*", "\\*")


def _value(option: Declared) -> str:
    choices = option.option.choices
    return ", ".join(f"`{c}`" for c in choices) if choices else WORDS[option.kind]


if __name__ == "__main__":
    sys.stdout.write(reference())
