"""docs/cli.md is generated: it is the reference of the options as they are declared."""

from __future__ import annotations

from pathlib import Path

from app.command_options import StreamsOptions
from app.config import Settings
from app.options import declared
from app.reference import reference
from app.serve.serve_options import ServeOptions

PAGE = Path(__file__).parents[2] / "docs/cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: python -m app.reference > docs/cli.md"


def test_every_option_is_on_it() -> None:
    page = reference()
    for kind in (Settings, ServeOptions, StreamsOptions):
        assert all(f"`{option.flag}" in page for option in declared(kind).values())
