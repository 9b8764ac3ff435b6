"""Wall-clock time, for people and for cameras that report theirs. Latencies are never computed from it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def wall_s(monotonic_s: float, now_s: float | None = None) -> float:
    """Convert a time of the monotonic clock to seconds since 1970 (UTC), by the current setting of this machine's wall clock.

    now_s: the present time of the clock that `monotonic_s` comes from; None: it is `time.monotonic`.
    """
    return time.time() - ((time.monotonic() if now_s is None else now_s) - monotonic_s)


def utc(unix_s: float) -> str:
    """Seconds since 1970 as text (ISO 8601, UTC) with milliseconds: 2026-11-30T03:00:00.123Z."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
