"""The command `watchline`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    from app.flags import parser

    flags = vars(parser().parse_args(argv))
    command = flags.pop("command")
    # Before any library is imported that looks: nothing phones home.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    from app import commands

    return commands.run(command, flags)


if __name__ == "__main__":
    sys.exit(main())
