"""The clips of the sources' tests serve the tests of media, too."""

from __future__ import annotations

from tests.sources.conftest import clips as clips
