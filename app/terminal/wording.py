"""Messages of the library in the words of the command line.

The library names an option as its code does, in backticks: `rtsp_transport` tcp, `no_tls_verify`. On the terminal and in the
report that is the flag: --rtsp-transport tcp, --no-tls-verify. A command is named in the same way.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from app import command_options
from app.config import Settings
from app.options import declared

NAMED = re.compile(r"`(\w+)`")
COMMANDS = ("doctor", "calibrate")
VARIABLES = {"cache": "WATCHLINE_CACHE"}


def worded(text: str) -> str:
    """The text with flags, commands and variables in place of names in backticks. Unknown names stay as they are."""
    return NAMED.sub(lambda match: _words().get(match[1], match[0]), text)


def worded_in(value: Any) -> Any:
    """The same for every text in a report."""
    if isinstance(value, str):
        return worded(value)
    if isinstance(value, dict):
        return {key: worded_in(item) for key, item in value.items()}
    if isinstance(value, list):
        return [worded_in(item) for item in value]
    return value


@cache
def _words() -> dict[str, str]:
    kinds = [kind for name, kind in vars(command_options).items() if name.endswith("Options")]
    found = [option for kind in (Settings, *kinds) for option in declared(kind).values()]
    words = {option.name: option.flag for option in found}
    words |= {f"no_{option.name}": f"--no-{option.key}" for option in found if option.option.toggle}
    return words | {name: f"watchline {name}" for name in COMMANDS} | VARIABLES
