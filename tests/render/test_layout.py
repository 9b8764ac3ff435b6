from __future__ import annotations

import pytest

from pipelines.render.canvas import Rect
from pipelines.render.layout import header_layout, mark_layout, panel_layout

SIZES = [
    (120, 90),
    (160, 120),
    (320, 240),
    (640, 272),
    (640, 360),
    (720, 1280),
    (1280, 720),
    (1920, 1080),
    (3840, 2160),
    (4000, 100),
    (120, 4000),
    (131, 97),
    (1079, 1919),
    (7680, 4320),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("labels", [1, 2, 5, 30])
def test_the_panel_lies_inside_the_lower_part(size: tuple[int, int], labels: int) -> None:
    layout = panel_layout(*size, labels)
    assert layout is not None
    panel = layout.panel
    assert panel.x >= 0
    assert panel.right <= size[0]
    assert 0.55 * size[1] <= panel.y < panel.bottom <= size[1]
    assert all(value % 2 == 0 for value in (panel.x, panel.y, panel.w, panel.h))
    assert 1 <= len(layout.rows) <= labels


@pytest.mark.parametrize("size", SIZES)
def test_rows_stand_below_each_other_inside_the_panel(size: tuple[int, int]) -> None:
    layout = panel_layout(*size, 5)
    assert layout is not None
    floor = layout.panel.y
    for row in layout.rows:
        assert floor <= row.baseline - 0.75 * row.size
        assert row.baseline < row.bar.y
        assert layout.panel.x < row.bar.x < row.bar.right < layout.panel.right
        floor = row.bar.bottom
    assert floor < layout.panel.bottom


@pytest.mark.parametrize(("size", "rows"), [((160, 120), 2), ((320, 240), 5), ((1280, 720), 5), ((3840, 2160), 5)])
def test_a_smaller_picture_shows_fewer_rows(size: tuple[int, int], rows: int) -> None:
    layout = panel_layout(*size, 5)
    assert layout is not None
    assert len(layout.rows) == rows


@pytest.mark.parametrize("size", [(64, 64), (119, 1000), (1000, 89), (1, 1)])
def test_nothing_is_laid_out_where_it_would_hide_the_picture(size: tuple[int, int]) -> None:
    assert panel_layout(*size, 5) is None
    assert header_layout(*size) is None
    assert mark_layout(*size) is None


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert panel_layout(1280, 720, 0) is None


@pytest.mark.parametrize("size", SIZES)
def test_the_header_stays_clear_of_the_panel(size: tuple[int, int]) -> None:
    header = header_layout(*size)
    if size[1] <= 120:
        assert header is None
        return
    assert header is not None
    assert header.y + header.h <= 0.15 * size[1]
    assert header.x + header.max_w <= size[0]


def test_rects_meet_only_where_they_share_a_sample() -> None:
    rect = Rect(10, 10, 4, 4)
    assert rect.meets(Rect(13, 13, 1, 1))
    assert not rect.meets(Rect(14, 10, 4, 4))
    assert rect.meets(Rect(14, 10, 4, 4).grown(1))
