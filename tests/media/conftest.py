"""Fixtures: the same clips as for the tests of sources."""

from __future__ import annotations

from tests.sources.conftest import clips as clips
