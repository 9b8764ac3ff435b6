from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest

from pipelines.frame import WHOLE, Picture, Prediction
from pipelines.render.canvas import to_yuv
from pipelines.render.label_panel import percent
from pipelines.render.layout import panel_layout
from pipelines.render.overlay import Overlay, media_time
from pipelines.render.style import OverlayStyle
from tests.render.test_plane_pool import count_allocations

from .samples import BARE, EMPTY, FIVE, flat, frame, noise, prediction

TURNS = [(rotation, mirrored) for rotation in (0, 90, 180, 270) for mirrored in (False, True)]
SIZES = [(64, 48), (48, 64), (33, 27), (32, 27), (33, 26), (1, 1), (2, 2), (1, 40), (40, 1), (3, 2), (17, 16)]


def copies(picture: Picture) -> list[np.ndarray]:
    return [plane.copy() for plane in (picture.y, picture.u, picture.v)]


def same(picture: Picture, planes: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip((picture.y, picture.u, picture.v), planes, strict=True))


# --- geometry


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("rotation", "mirrored"), TURNS)
def test_the_picture_comes_out_upright_and_even(size: tuple[int, int], rotation: int, mirrored: bool) -> None:
    picture = noise(*size, rotation=rotation, mirrored=mirrored)
    drawn = Overlay(BARE).render(frame(picture), EMPTY)
    width, height = picture.upright_size
    y, u, v = picture.upright()
    assert (drawn.width, drawn.height) == (width + width % 2, height + height % 2)
    assert (drawn.rotation, drawn.mirrored) == (0, False)
    assert np.array_equal(drawn.y[:height, :width], y)
    assert np.array_equal(drawn.u, u)
    assert np.array_equal(drawn.v, v)
    assert np.array_equal(drawn.y[:, -1], drawn.y[:, width - 1])
    assert np.array_equal(drawn.y[-1], drawn.y[height - 1])


def test_rows_with_padding_behind_them_are_read_right() -> None:
    wide = noise(200, 100)
    picture = Picture(wide.y[:90, :130], wide.u[:45, :65], wide.v[:45, :65], rotation=90)
    drawn = Overlay(BARE).render(frame(picture), EMPTY)
    assert same(drawn, [*picture.upright()])


def test_what_the_planes_mean_is_handed_on() -> None:
    picture = noise(64, 48, matrix="bt709", full_range=True, rotation=90, sample_aspect=Fraction(4, 3))
    drawn = Overlay().render(frame(picture), FIVE)
    assert (drawn.matrix, drawn.full_range, drawn.sample_aspect) == ("bt709", True, Fraction(3, 4))


@pytest.mark.parametrize(("rotation", "mirrored"), TURNS)
def test_the_input_is_never_written(rotation: int, mirrored: bool) -> None:
    picture = flat(321, 241, 90, rotation=rotation, mirrored=mirrored)
    before = copies(picture)
    drawn = Overlay().render(frame(picture), FIVE, {WHOLE: (0.1, 0.1, 0.9, 0.9)})
    assert same(picture, before)
    for ours in (drawn.y, drawn.u, drawn.v):
        assert not any(np.shares_memory(ours, plane) for plane in (picture.y, picture.u, picture.v))


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_the_overlay_stands_upright_on_a_turned_picture(rotation: int) -> None:
    turned = Overlay().render(frame(flat(640, 480, 90, rotation=rotation)), FIVE)
    size = (480, 640) if rotation in (90, 270) else (640, 480)
    assert same(turned, copies(Overlay().render(frame(flat(*size, 90)), FIVE)))


# --- parts and their places


def changed(drawn: Picture, picture: Picture) -> np.ndarray:
    return drawn.y != picture.upright()[0]


def test_at_720p_the_middle_of_the_left_half_stays_free() -> None:
    picture = noise(1280, 720)
    drawn = Overlay(OverlayStyle(topk=5)).render(frame(picture), FIVE, {WHOLE: (0.22, 0.0625, 0.78, 0.9375)})
    touched = changed(drawn, picture)
    assert touched[:340].any()
    assert not touched[340:400].any()
    assert touched[400:].any()


def test_at_64x64_nothing_is_drawn() -> None:
    picture = noise(64, 64)
    drawn = Overlay().render(frame(picture), FIVE, {WHOLE: (0.1, 0.1, 0.9, 0.9)})
    assert same(drawn, copies(picture))


@pytest.mark.parametrize("size", [(160, 120), (320, 240), (640, 272), (720, 1280), (1280, 720)])
def test_from_160x120_on_name_probability_and_bar_can_be_seen(size: tuple[int, int]) -> None:
    picture = flat(*size, 120)
    layout = panel_layout(*size, 5)
    assert layout is not None
    empty = Overlay().render(frame(picture), prediction(("", 0.0), *[("", 0.0)] * 4))
    drawn = Overlay().render(frame(picture), FIVE)
    row = layout.rows[0]
    text = changed(drawn, empty)[row.baseline - row.size : row.bar.y]
    assert text[:, row.bar.x : row.bar.x + 3 * row.size].sum() > 2 * row.size
    assert text[:, row.bar.right - 2 * row.size : row.bar.right].sum() > row.size
    bar = drawn.y[row.bar.y, row.bar.x : row.bar.right].astype(int)
    assert abs(int((bar > bar[-1] + 40).sum()) - 0.88 * row.bar.w) <= 1


@pytest.mark.parametrize("box", [(0.1, 0.1, 0.9, 0.9), (0.0, 0.0, 1.0, 1.0), (-3.0, 0.2, 0.7, 9.0)])
@pytest.mark.parametrize("luma", [16, 128, 235])
def test_the_region_is_marked_at_its_corners_on_any_ground(box: tuple[float, ...], luma: int) -> None:
    picture = flat(1280, 720, luma)
    x0, y0, x1, y1 = box
    style = OverlayStyle(header=False, panel=False)
    drawn = Overlay(style).render(frame(picture), FIVE, {WHOLE: (x0, y0, x1, y1)}).y.astype(int)
    touched = drawn != luma
    assert 0 < touched.mean() < 0.001
    assert np.abs(drawn - luma).max() > 80
    left, top = round(max(0, x0) * 1280), round(max(0, y0) * 720)
    assert touched[top : top + 30, left : left + 30].any()
    assert not touched[300:420].any()


@pytest.mark.parametrize(
    "box", [None, (0.5, 0.5, 0.5, 0.5), (0.9, 0.9, 0.1, 0.1), (float("nan"), 0, 1, 1), (0, 0, float("inf"), 1)]
)
def test_a_region_that_is_none_is_not_marked(box: tuple[float, float, float, float] | None) -> None:
    picture = flat(1280, 720, 100)
    drawn = Overlay(OverlayStyle(header=False, panel=False)).render(frame(picture), FIVE, {WHOLE: box} if box else {})
    assert same(drawn, copies(picture))


def header_of(overlay: Overlay, **facts: object) -> np.ndarray:
    return overlay.render(frame(flat(640, 360, 100), **facts), EMPTY).y[:60].copy()  # type: ignore[arg-type]


def test_the_header_shows_the_media_time_of_a_file() -> None:
    early, late = header_of(Overlay(), pts_s=1.0), header_of(Overlay(), pts_s=2.0)
    assert not np.array_equal(early, late)
    assert not np.array_equal(early, header_of(Overlay(), pts_s=None))


def test_the_header_of_a_live_stream_shows_clock_and_age() -> None:
    def live(now: float, utc: float) -> np.ndarray:
        return header_of(Overlay(wall_clock=True, clock=lambda: now, utc=lambda: utc))

    reference = live(100.02, 5000.02)
    assert np.array_equal(reference, live(100.02, 5000.02))
    assert not np.array_equal(reference, live(100.03, 5000.03))
    assert not np.array_equal(reference, live(100.02, 5007.02))
    assert np.array_equal(reference, header_of(Overlay(wall_clock=True, clock=lambda: 100.02, utc=lambda: 5000.02), pts_s=9.0))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00:00.000"),
        (12.345, "0:00:12.345"),
        (3599.9996, "1:00:00.000"),
        (360_000, "100:00:00.000"),
        (-1.5, "-0:00:01.500"),
        (-0.0001, "0:00:00.000"),
    ],
)
def test_media_time(seconds: float, shown: str) -> None:
    assert media_time(seconds) == shown


@pytest.mark.parametrize(
    ("p", "shown"),
    [
        (0.0, "0%"),
        (0.004, "<1%"),
        (0.0099, "<1%"),
        (0.884, "88%"),
        (1.0, "100%"),
        (1.5, "100%"),
        (-1, "0%"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_percent(p: float, shown: str) -> None:
    assert percent(p) == shown


# --- readable on any ground


def contrast(light: float, dark: float) -> float:
    """WCAG 2's ratio of two limited-range grey levels."""

    def luminance(level: float) -> float:
        value = min(max((level - 16) / 219, 0.0), 1.0)
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return (luminance(light) + 0.05) / (luminance(dark) + 0.05)


GROUNDS = {"white": flat(1280, 720, 235), "black": flat(1280, 720, 16), "noise": noise(1280, 720)}


@pytest.mark.parametrize("ground", GROUNDS.values(), ids=GROUNDS.keys())
@pytest.mark.parametrize("index", range(5))
def test_text_stands_out_from_the_panel_on_any_ground(ground: Picture, index: int) -> None:
    layout = panel_layout(1280, 720, 5)
    assert layout is not None
    row = layout.rows[index]
    drawn = Overlay().render(frame(ground), FIVE)
    line = drawn.y[row.baseline - row.size // 2 : row.baseline]
    ink = np.percentile(line[:, row.bar.x : row.bar.x + 30], 95)
    between = line[:, row.bar.right - 4 * row.size : row.bar.right - 3 * row.size]
    assert contrast(ink, np.percentile(between, 95)) > 5.5


@pytest.mark.parametrize(("full_range", "brightest", "darkest"), [(False, 235, 16), (True, 255, 0)])
def test_levels_follow_the_range(full_range: bool, brightest: int, darkest: int) -> None:
    drawn = Overlay().render(frame(flat(1280, 720, darkest, full_range=full_range)), FIVE, {WHOLE: (0.1, 0.1, 0.9, 0.9)})
    assert darkest <= drawn.y.min()
    assert brightest - 6 <= drawn.y.max() <= brightest


def test_colour_under_the_panel_is_muted() -> None:
    red = flat(1280, 720, 81)
    red = Picture(red.y, np.full_like(red.u, 90), np.full_like(red.v, 240))
    drawn = Overlay(OverlayStyle(marks=False)).render(frame(red), prediction(("fox", 0.0)))
    layout = panel_layout(1280, 720, 1)
    assert layout is not None
    panel = layout.panel
    inside = drawn.v[panel.y // 2 + 8 : panel.bottom // 2 - 8, panel.x // 2 + 8 : panel.right // 2 - 8]
    assert np.abs(inside.astype(int) - 128).max() < 16


@pytest.mark.parametrize(
    ("rgb", "matrix", "full_range", "yuv"),
    [
        ((255, 255, 255), "bt709", False, (235, 128, 128)),
        ((0, 0, 0), "bt601", False, (16, 128, 128)),
        ((255, 0, 0), "bt601", False, (81, 90, 240)),
        ((0, 0, 255), "bt709", False, (32, 240, 118)),
        ((255, 255, 255), "bt2020", True, (255, 128, 128)),
    ],
)
def test_colours(rgb: tuple[int, int, int], matrix: str, full_range: bool, yuv: tuple[int, int, int]) -> None:
    assert to_yuv(rgb, matrix, full_range) == yuv  # type: ignore[arg-type]


# --- robust


ODD_PREDICTIONS: dict[str, Prediction] = {
    "no label": EMPTY,
    "a thousand": prediction(*[(f"class {i}", 0.001) for i in range(1000)]),
    "no number": prediction(("a", float("nan")), ("b", float("inf")), ("c", -1.0), ("d", 7.0)),
    "empty and blank names": prediction(("", 0.5), (" \n ", 0.3), ("\x00\u202e", 0.2)),
    "long": prediction(("fox squirrel, " * 20, 0.5), ("狐" * 200, 0.2)),
    "scripts": prediction(("Белка 狐松鼠 リス", 0.5), ("سنجاب סנאי", 0.2), ("ციყვი กระรอก 😀\ud800", 0.1)),
}


@pytest.mark.parametrize("odd", ODD_PREDICTIONS.values(), ids=ODD_PREDICTIONS.keys())
@pytest.mark.parametrize(
    "size",
    [(1, 1), (2, 2), (64, 64), (120, 90), (121, 131), (160, 120), (4001, 3), (5000, 95), (122, 3000), (641, 361)],
)
@pytest.mark.parametrize("wall_clock", [False, True])
def test_nothing_upsets_it(odd: Prediction, size: tuple[int, int], wall_clock: bool) -> None:
    overlay = Overlay(wall_clock=wall_clock)
    picture = noise(*size)
    for stream, pts_s in (("", None), ("камера " * 30, 1e6), ("c\n\t", float("nan"))):
        drawn = overlay.render(frame(picture, stream=stream, pts_s=pts_s), odd, {WHOLE: (0.2, 0.0, 0.8, 1.0)})
        assert (drawn.width, drawn.height) == (size[0] + size[0] % 2, size[1] + size[1] % 2)


@pytest.mark.parametrize("scale", [0.25, 4.0])
@pytest.mark.parametrize("topk", [1, 50])
def test_any_style_fits_any_size(scale: float, topk: int) -> None:
    labels = ODD_PREDICTIONS["a thousand"]
    for size in ((130, 100), (320, 240), (1280, 720)):
        picture = noise(*size)
        drawn = Overlay(OverlayStyle(topk=topk, scale=scale)).render(frame(picture), labels, {WHOLE: (0.0, 0.0, 1.0, 1.0)})
        assert not changed(drawn, picture)[int(0.3 * size[1]) : int(0.55 * size[1])].all(axis=1).any()


@pytest.mark.parametrize("wrong", [{"opacity": 1.1}, {"opacity": -0.1}, {"scale": 0}, {"topk": 0}])
def test_a_style_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        OverlayStyle(**wrong)  # type: ignore[arg-type]


# --- nothing grows


def test_after_warm_up_no_planes_are_allocated_and_no_cache_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated = count_allocations(monkeypatch)
    overlay, picture = Overlay(), noise(320, 240)
    in_flight = [overlay.render(frame(picture), FIVE) for _ in range(3)]

    def show(index: int) -> None:
        labels = prediction(*[(f"class {i}", ((index * 7 + i) % 101) / 100) for i in range(5)])
        in_flight[index % 3] = overlay.render(frame(picture, index=index, pts_s=index / 25), labels, {WHOLE: (0.1, 0, 0.9, 1)})

    for index in range(20):
        show(index)
    masks = len(overlay._painter._masks)
    for index in range(20, 600):
        show(index)
    assert len(allocated) == 4
    assert len(overlay._painter._masks) == masks


def test_a_picture_that_is_kept_keeps_its_content() -> None:
    overlay = Overlay()
    kept = overlay.render(frame(flat(320, 240, 50)), FIVE)
    content = copies(kept)
    for luma in range(60, 100):
        overlay.render(frame(flat(320, 240, luma)), FIVE)
    assert same(kept, content)


def test_lanes_draw_at_the_same_time_as_they_draw_alone() -> None:
    """OpenCV's font engine is thread-local; a face that is shared between threads would mix sizes and weights."""
    pictures = [flat(320 + 80 * i, 240 + 60 * i, 100) for i in range(4)]
    alone = [copies(Overlay().render(frame(picture), FIVE)) for picture in pictures]
    wrong: list[int] = []

    def lane(index: int) -> None:
        overlay = Overlay()
        for _ in range(30):
            if not same(overlay.render(frame(pictures[index]), FIVE), alone[index]):
                wrong.append(index)

    threads = [threading.Thread(target=lane, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
