"""The command `watchline`. Its imports are inside `main`, after the signal handlers are set."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without `argv` the command owns the process: signals and standard streams
    are not given back."""
    from app.terminal.signals import Signals

    with Signals(for_good=argv is None) as signals:
        from app.flags import parse
        from app.terminal.stdio import claimed

        flags = parse(argv)
        with claimed(for_good=argv is None) as results:
            from app import dispatch

            return dispatch.run(flags, results, signals)


if __name__ == "__main__":
    sys.exit(main())
