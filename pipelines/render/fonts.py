"""FontIndex: finds an installed font for characters that OpenCV's built-in font lacks.

Nothing is read at import. A search reads the character maps of further fonts only if no font that was read before has the
characters: 10-30 ms for most fonts, 170 ms for a CJK font. `FontIndex.find` is therefore called before the first frame for
all known names, and no font is read after that (see `text.find_fonts`).

fontconfig was measured as a replacement. `fc-match :charset=...` takes 5-55 ms for each search, needs a program that macOS,
Windows and small images lack, and answers with a font that does not have the characters if no font has them.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/System/Library/Fonts",
    "/Library/Fonts",
    "~/Library/Fonts",
    "C:/Windows/Fonts",
)
SUFFIXES = frozenset({".ttf", ".otf", ".ttc"})

_PREFERRED = ("dejavusans", "notosans", "liberationsans", "arial", "segoeui", "freesans", "droidsans")
_UNWANTED = ("bold", "italic", "oblique", "light", "thin", "black", "condensed", "narrow", "mono", "serif", "math")
_OPENED_PER_SEARCH = 64
"""Most fonts that one search reads: about 2 s on a desktop with thousands of fonts. Likely fonts come first."""
_REMEMBERED = 4096
"""Most answers that an index keeps."""

Codes = npt.NDArray[np.uint32]


class FontIndex:
    """Finds fonts by their characters. Thread: any; a lock is held while fonts are read."""

    def __init__(self, folders: Iterable[str] = FOLDERS) -> None:
        self._folders = tuple(folders)
        self._lock = threading.Lock()
        self._files: list[Path] | None = None
        self._codes: dict[Path, Codes] = {}
        self._found: dict[str, Path | None] = {}
        self._reading = True

    def read(self, on: bool) -> None:
        """Allow or forbid searches to read further fonts. While it is forbidden, a search takes no time."""
        with self._lock:
            self._reading = on
            self._found = {key: font for key, font in self._found.items() if font is not None}

    def find(self, characters: str) -> Path | None:
        """The preferred font with all `characters`; None if no installed font has them all."""
        key = "".join(sorted(set(characters)))
        with self._lock:
            if key not in self._found:
                if len(self._found) >= _REMEMBERED:
                    self._found.clear()
                self._found[key] = self._search(key)
            return self._found[key]

    def has(self, font: Path, characters: str) -> bool:
        """Whether `font` has all `characters`."""
        with self._lock:
            return _covers(self._read(font), characters)

    def _search(self, characters: str) -> Path | None:
        if self._files is None:
            self._files = sorted(_font_files(self._folders), key=_rank)
        for font in self._files:
            if font in self._codes and _covers(self._codes[font], characters):
                return font
        if not self._reading:
            return None
        hint = _script(characters)
        unread = (f for f in self._files if f not in self._codes)
        likely_first = sorted(unread, key=lambda f: hint not in f.stem.lower())
        return next((f for f in islice(likely_first, _OPENED_PER_SEARCH) if _covers(self._read(f), characters)), None)

    def _read(self, font: Path) -> Codes:
        if font not in self._codes:
            self._codes[font] = _read_codes(font)
        return self._codes[font]


def _font_files(folders: tuple[str, ...]) -> Iterable[Path]:
    for folder in folders:
        try:
            found = list(Path(folder).expanduser().rglob("*"))
        except (OSError, RuntimeError):  # the folder is unreadable, or there is no home folder
            continue
        yield from (path for path in found if path.suffix.lower() in SUFFIXES)


def _rank(font: Path) -> tuple[int, int, str]:
    """The sort key of a font: upright regular sans fonts come first."""
    stem = font.stem.lower()
    family = next((i for i, name in enumerate(_PREFERRED) if stem.startswith(name)), len(_PREFERRED))
    return sum(word in stem for word in _UNWANTED), family, str(font)


def _script(characters: str) -> str:
    """The script of the highest character, for example 'devanagari': fonts of one script have its name in their file names."""
    return unicodedata.name(max(characters, default=" "), "?").split()[0].lower()


def _covers(codes: Codes, characters: str) -> bool:
    wanted = np.array([ord(c) for c in characters], np.uint32)
    return bool(np.isin(wanted, codes).all())


def _read_codes(font: Path) -> Codes:
    """The characters of a font with outlines; none for a broken font or a font of coloured bitmaps."""
    from fontTools.ttLib import TTFont  # 0.1 s to import, and most runs never need it

    try:
        # Opened here, because TTFont leaves a file open if it cannot read it.
        with font.open("rb") as file, TTFont(file, lazy=True, fontNumber=0) as opened:
            outlined = any(table in opened for table in ("glyf", "CFF ", "CFF2"))
            return np.array(list(opened.getBestCmap() or ()) if outlined else (), np.uint32)
    except Exception:  # fontTools raises errors of many types on a broken table: the font counts as empty
        return np.empty(0, np.uint32)


INSTALLED = FontIndex()
"""The index of the process: each font is read once."""
