"""The wall clock, for people and for cameras that tell theirs. No latency is computed from it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def wall_s(monotonic_s: float, now_s: float | None = None) -> float:
    """Seconds since 1970 (UTC) at a time of the monotonic clock, by this machine's wall clock as it is set now.

    now_s: what the monotonic clock shows now, if it is not the system's.
    """
    return time.time() - ((time.monotonic() if now_s is None else now_s) - monotonic_s)


def utc(unix_s: float) -> str:
    """Seconds since 1970 as people read them, to the millisecond: 2026-11-30T03:00:00.123Z."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
