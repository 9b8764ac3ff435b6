from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from pipelines.render.builtin import builtin_has
from pipelines.render.fonts import FontIndex
from pipelines.render.runs import MISSING, Run, clean, clusters, split_runs
from pipelines.render.text import TextPainter, ascent, find_fonts, line_height

NO_FONTS = FontIndex(())


def make_font(path: Path, characters: str) -> None:
    """A font in which every letter is a block as high as a capital."""
    characters = "".join(sorted(set(characters)))
    names = [".notdef", *(f"u{ord(c):04X}" for c in characters)]
    pen = TTGlyphPen(None)
    for move, point in zip((pen.moveTo, *[pen.lineTo] * 3), ((50, 0), (50, 700), (550, 700), (550, 0)), strict=True):
        move(point)
    pen.closePath()
    block = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(c): f"u{ord(c):04X}" for c in characters})
    builder.setupGlyf(dict.fromkeys(names, block))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (600, 50)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fonts that any machine has during this test: Georgian, Arabic with Hebrew and Latin; and two broken files."""
    make_font(tmp_path / "Georgian-Regular.ttf", "ციყვი ")
    make_font(tmp_path / "Oriental-Regular.ttf", "سنجابאקרfox …")
    (tmp_path / "Broken-Regular.ttf").write_bytes(b"\x00\x01\x00\x00 no font at all")
    (tmp_path / "Empty.otf").write_bytes(b"")
    return tmp_path


@pytest.fixture
def fonts(folder: Path) -> FontIndex:
    return FontIndex((str(folder), "/nowhere"))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("fox\nsquirrel\t\x00 x", "fox squirrel x"),
        ("  a  b ", "a b"),
        ("", ""),
        ("e\u0301", "é"),
        ("gpj.\u202ecat", "gpj.cat"),
        ("a\ufeffb\u200bc\ufe0f", "abc"),
        ("a\ud800b", f"a{MISSING}b"),
        ("one\u2028two\x85three", "one two three"),
    ],
)
def test_a_name_becomes_one_printable_line(raw: str, shown: str) -> None:
    assert clean(raw) == shown


def test_marks_stay_with_their_letter() -> None:
    assert clusters("กระ่a\u0323b") == ["ก", "ร", "ะ่", "a\u0323", "b"]


@pytest.mark.parametrize("text", ["fox", "Ąéß", "Белка", "σκίουρος", "狐松鼠", "リス", "다람쥐", "Tiếng", MISSING, "…?"])
def test_opencv_alone_draws_these(text: str) -> None:
    assert split_runs(text, NO_FONTS) == [Run(text)]
    assert TextPainter(fonts=NO_FONTS).mask(text, 20).max() > 200


@pytest.mark.parametrize("character", ["\ue000", "ც", "ग", "😀"])
def test_what_opencv_lacks_is_known(character: str) -> None:
    assert not builtin_has(character)


def test_a_script_is_drawn_with_the_font_that_has_it(fonts: FontIndex, folder: Path) -> None:
    assert split_runs("ციყვი", fonts) == [Run("ციყვი", folder / "Georgian-Regular.ttf")]
    mask = TextPainter(fonts=fonts).mask("ციყვი", 20)
    blocks = mask[ascent(20) - 10]
    assert ((blocks[1:] > 127) & (blocks[:-1] <= 127)).sum() == 5


def test_mixed_scripts_are_cut_into_runs(fonts: FontIndex, folder: Path) -> None:
    georgian = folder / "Georgian-Regular.ttf"
    assert split_runs("狐 ციყვი fox", fonts) == [Run("狐 "), Run("ციყვი ", georgian), Run("fox")]


def test_one_font_draws_the_whole_line_where_it_can(fonts: FontIndex, folder: Path) -> None:
    assert split_runs("سنجاب fox", fonts) == [Run("سنجاب fox", folder / "Oriental-Regular.ttf")]


def test_a_line_that_begins_from_right_to_left_has_its_runs_reversed(fonts: FontIndex, folder: Path) -> None:
    oriental = folder / "Oriental-Regular.ttf"
    assert split_runs("אקר 狐", fonts) == [Run("狐"), Run("אקר ", oriental)]


def test_what_no_font_has_becomes_a_box(fonts: FontIndex) -> None:
    assert split_runs("गि", fonts) == [Run(MISSING)]
    assert split_runs("سن", NO_FONTS) == [Run(MISSING * 2)]
    assert TextPainter(fonts=NO_FONTS).mask("سن", 20).any()


def test_a_font_that_freetype_refuses_counts_as_none(fonts: FontIndex, folder: Path) -> None:
    assert fonts.find("ც") == folder / "Georgian-Regular.ttf"
    (folder / "Georgian-Regular.ttf").write_bytes(b"replaced")
    boxes = TextPainter(fonts=NO_FONTS).mask(MISSING, 20)
    assert np.array_equal(TextPainter(fonts=fonts).mask("ც", 20), boxes)


def test_fonts_in_the_usual_folders_do_no_harm() -> None:
    mask = TextPainter().mask("سنجاب סנאי ციყვი กระรอก गिलहरी 😀 fox", 20)
    assert mask.max() == 255


@pytest.mark.parametrize("text", ["fox squirrel " * 15, "狐" * 200, "سنجاب " * 40, "ცი ყვ" * 40, "W" * 200])
@pytest.mark.parametrize("width", [1, 7, 60, 300])
def test_a_long_name_is_shortened_to_the_width(text: str, width: int, fonts: FontIndex) -> None:
    mask = TextPainter(fonts=fonts).mask(text, 17, max_width=width)
    assert mask.shape[0] == line_height(17)
    assert mask.shape[1] <= width
    if width > 100:
        assert mask.shape[1] > width - 40
        assert mask[:, -20:].any()


def test_a_name_that_fits_is_left_alone() -> None:
    painter = TextPainter()
    assert np.array_equal(painter.mask("fox", 20, max_width=500), painter.mask("fox", 20))


@pytest.mark.parametrize("text", ["", " ", "\n", "\u200d"])
def test_nothing_to_draw_is_an_empty_mask(text: str) -> None:
    assert not TextPainter(fonts=NO_FONTS).mask(text, 20).any()


def test_accents_and_descenders_are_inside_the_mask() -> None:
    mask = TextPainter().mask("ẤỆÅgjpqy", 40)
    assert not mask[0].any()
    assert not mask[-1].any()


def test_the_cache_is_bounded_in_number_and_bytes() -> None:
    painter = TextPainter(max_masks=50, max_bytes=100_000)
    for index in range(400):
        painter.mask(f"class {index}", 17)
        painter.number_width("x" * (index % 90), 17, 400)
    assert len(painter._masks) <= 50
    assert sum(mask.nbytes for mask in painter._masks.values()) <= 100_000
    painter.mask("W" * 300, 90)
    assert len(painter._masks) == 1


def test_a_mask_is_drawn_once_and_cannot_be_written() -> None:
    painter = TextPainter()
    mask = painter.mask("fox", 20)
    assert painter.mask("fox", 20) is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0, 0] = 1


def test_a_running_clock_needs_one_width() -> None:
    painter = TextPainter()
    widths = {painter.number_width(f"0:00:{i // 1000:02}.{i % 1000:03}", 16, 400) for i in range(0, 60_000, 7)}
    assert len(widths) == 1
    assert len(painter._widths) == 1


@pytest.mark.parametrize(
    "look", [lambda fonts: find_fonts(["ციყვი"], 9, fonts=fonts), lambda fonts: TextPainter(fonts=fonts).mask("ციყვი", 20)]
)
def test_fonts_are_looked_for_once(look: Callable[[FontIndex], object], folder: Path) -> None:
    fonts = FontIndex((str(folder),))
    look(fonts)
    for path in folder.iterdir():
        path.unlink()
    assert fonts.find("ციყვი") == folder / "Georgian-Regular.ttf"


class TestFindFonts:
    """The search before the first frame takes a bounded time, and no font is read after it."""

    NAMES = ("ციყვი", "سنجاب", "ไทย", "fox")

    def test_all_names(self, fonts: FontIndex, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert find_fonts(self.NAMES, 9, fonts=fonts)
        monkeypatch.setattr("pipelines.render.fonts._read_codes", lambda font: pytest.fail("a font was read"))
        found = [split_runs(clean(name), fonts)[0].font for name in self.NAMES]
        assert found == [folder / "Georgian-Regular.ttf", folder / "Oriental-Regular.ttf", None, None]
        assert {run.font for run in split_runs("हिन्दी", fonts)} == {None}

    def test_a_search_that_takes_too_long_is_given_up(self, fonts: FontIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        ticks = itertools.count()
        assert not find_fonts(self.NAMES, 0.5, fonts=fonts, clock=lambda: next(ticks))
        monkeypatch.setattr("pipelines.render.fonts._read_codes", lambda font: pytest.fail("a font was read"))
        assert split_runs("ციყვი", fonts) == [Run(5 * MISSING)]

    def test_a_stop_ends_it(self, fonts: FontIndex) -> None:
        assert not find_fonts(self.NAMES, 9, lambda: False, fonts=fonts)

    def test_the_next_run_in_the_process_looks_anew(self, fonts: FontIndex, folder: Path) -> None:
        assert not find_fonts(self.NAMES, 9, lambda: False, fonts=fonts)
        assert fonts.find("ციყვი") is None
        assert find_fonts(self.NAMES, 9, fonts=fonts)
        assert fonts.find("ციყვი") == folder / "Georgian-Regular.ttf"
