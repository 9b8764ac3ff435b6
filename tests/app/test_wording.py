"""Messages of the library as people read them: flags, commands and variables in place of names in backticks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.terminal.wording import NAMED, worded, worded_in

PIPELINES = Path(__file__).parents[2] / "pipelines"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("`rtsp_transport` tcp gets around it", "--rtsp-transport tcp gets around it"),
        ("`no_tls_verify` turns the check off", "--no-tls-verify turns the check off"),
        ("see `doctor`, set `cache` to another", "see watchline doctor, set WATCHLINE_CACHE to another"),
        ("kept by `force`", "kept by --force"),
        ("`nothing` of ours", "`nothing` of ours"),
    ],
)
def test_words(text: str, said: str) -> None:
    assert worded(text) == said
    assert worded_in({"errors": [text, 1], "x": None}) == {"errors": [said, 1], "x": None}


def test_every_name_in_a_message_of_the_library_is_known_to_the_command_line() -> None:
    named = {name for path in PIPELINES.rglob("*.py") for text in _texts(path) for name in NAMED.findall(text)}
    assert {"rtsp_transport", "device", "show"} <= named
    assert [name for name in sorted(named) if worded(f"`{name}`") == f"`{name}`"] == []


def _texts(path: Path) -> Iterator[str]:
    """Every text in the code that is no docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
