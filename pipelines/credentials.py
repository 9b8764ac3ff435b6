"""User and password of a source, kept apart from its address."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password, without percent-encoding. Neither half stands in the repr; they are never part of an address that is
    kept, named or logged."""

    user: str = field(repr=False)
    password: str = field(default="", repr=False)
