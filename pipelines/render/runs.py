"""Runs: a line of text is cleaned and cut into pieces that one font each can draw."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path

from pipelines.render.builtin import builtin_has
from pipelines.render.fonts import FontIndex

MISSING = "□"
"""The sign for a character that no font has. OpenCV's font has the sign."""

_LONGEST = 400
"""Most characters of a text that are used; no panel has room for more."""
_JOINERS = "\u200c\u200d"


def clean(text: str) -> str:
    """`text` as one printable line: composed (NFC), with single spaces for blanks and control characters, and without
    invisible characters.

    Direction overrides are removed, too: they can make one name look like another one.
    """
    visible = (_printable(c) for c in unicodedata.normalize("NFC", text[:_LONGEST]))
    return " ".join("".join(visible).split())


def _printable(character: str) -> str:
    """The replacement of a character in a printable line."""
    category = unicodedata.category(character)
    if character in _JOINERS:
        return character
    if category == "Cf" or "\ufe00" <= character <= "\ufe0f":
        return ""
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return MISSING if category in ("Cs", "Cn") else character


def clusters(text: str) -> list[str]:
    """`text` cut into letters with their marks and joiners: the places where a text may be cut."""
    parts: list[str] = []
    for character in text:
        joined = unicodedata.category(character)[0] == "M" or character in _JOINERS
        if parts and (joined or parts[-1][-1] == "\u200d"):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


def is_simple(cluster: str) -> bool:
    """Whether OpenCV's font draws the cluster correctly: one character that the font has, written from left to right."""
    right_to_left = unicodedata.bidirectional(cluster[0]) in ("R", "AL", "AN")
    mark = unicodedata.category(cluster[0])[0] == "M"
    return len(cluster) == 1 and not right_to_left and not mark and builtin_has(cluster)


@dataclass(frozen=True, slots=True)
class Run:
    """A piece of a line that one font draws. font: the font's file; None: OpenCV's own font."""

    text: str
    font: Path | None = None


def split_runs(text: str, fonts: FontIndex) -> list[Run]:
    """The runs of a clean line from left to right.

    One font draws the whole line if there is one, because Pillow can then order mixed directions itself. Otherwise each
    piece has its font, and the pieces are reversed if the line begins from right to left.
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
    """The run of one cluster. A blank or sign uses the font of the letter before it, so that a phrase stays one run."""
    neutral = unicodedata.bidirectional(part[0]) not in ("L", "R", "AL", "EN", "AN")
    if previous is not None and neutral and fonts.has(previous, part):
        return Run(part, previous)
    if is_simple(part):
        return Run(part)
    font = fonts.find(part)
    return Run(MISSING) if font is None else Run(part, font)


def is_rtl(text: str) -> bool:
    """Whether the first character with a direction runs from right to left."""
    strong = (unicodedata.bidirectional(c) for c in text)
    return next((d for d in strong if d in ("L", "R", "AL")), "L") != "L"
