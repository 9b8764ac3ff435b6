"""A line of text cleaned and cut into runs, each of which one font can draw."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

from pipelines.render.builtin import builtin_has
from pipelines.render.fonts import FontIndex

MISSING = "□"
"""Drawn for a character that no font has. OpenCV's font has it."""

_LONGEST = 400
"""Characters of a name that are looked at; no panel shows more."""
_JOINERS = "\u200c\u200d"


def clean(text: str) -> str:
    """One printable line: composed, blanks and control characters as single spaces, invisible characters gone.

    Direction overrides go too: they can make a name read as another one.
    """
    visible = (_printable(c) for c in unicodedata.normalize("NFC", text[:_LONGEST]))
    return " ".join("".join(visible).split())


def _printable(character: str) -> str:
    category = unicodedata.category(character)
    if character in _JOINERS:
        return character
    if category == "Cf" or "\ufe00" <= character <= "\ufe0f":
        return ""
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return MISSING if category in ("Cs", "Cn") else character


def clusters(text: str) -> list[str]:
    """`text` cut where it may be cut: marks and joiners stay with their letter."""
    parts: list[str] = []
    for character in text:
        joined = unicodedata.category(character)[0] == "M" or character in _JOINERS
        if parts and (joined or parts[-1][-1] == "\u200d"):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def is_simple(cluster: str) -> bool:
    """Whether OpenCV draws it right: one character that it has and that runs from left to right."""
    right_to_left = unicodedata.bidirectional(cluster[0]) in ("R", "AL", "AN")
    mark = unicodedata.category(cluster[0])[0] == "M"
    return len(cluster) == 1 and not right_to_left and not mark and builtin_has(cluster)


@dataclass(frozen=True, slots=True)
class Run:
    """A piece of a line that one font draws; font None: OpenCV's."""

    text: str
    font: Path | None = None


def split_runs(text: str, fonts: FontIndex) -> list[Run]:
    """Runs from left to right.

    One font for the whole line where there is one, because Pillow can then order mixed directions itself; else one
    for each piece, and the pieces reversed if the line begins from right to left.
    """
    parts = clusters(text)
    if all(is_simple(part) for part in parts):
        return [Run(text)]
    whole = fonts.find(text)
    if whole is not None:
        return [Run(text, whole)]
    runs: list[Run] = []
    for part in parts:
        run = _run(part, runs[-1].font if runs else None, fonts)
        if runs and runs[-1].font == run.font:
            runs[-1] = Run(runs[-1].text + run.text, run.font)
        else:
            runs.append(run)
    return runs[::-1] if is_rtl(text) else runs


def _run(part: str, previous: Path | None, fonts: FontIndex) -> Run:
    """A blank or sign goes on in the font of the letter before it, so that a phrase stays one run."""
    neutral = unicodedata.bidirectional(part[0]) not in ("L", "R", "AL", "EN", "AN")
    if previous is not None and neutral and fonts.has(previous, part):
        return Run(part, previous)
    if is_simple(part):
        return Run(part)
    font = fonts.find(part)
    return Run(MISSING) if font is None else Run(part, font)


def is_rtl(text: str) -> bool:
    strong = (unicodedata.bidirectional(c) for c in text)
    return next((d for d in strong if d in ("L", "R", "AL")), "L") != "L"
