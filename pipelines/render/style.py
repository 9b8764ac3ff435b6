"""The look of the overlay: sizes and colours that its owner chooses."""

from __future__ import annotations

from dataclasses import dataclass

RGB = tuple[int, int, int]
"""R'G'B', 0-255."""


@dataclass(frozen=True, slots=True)
class OverlayStyle:
    """The look of the overlay."""

    topk: int = 5
    """Most entries of an answer; a small picture shows fewer."""
    scale: float = 1.0
    """Factor on all sizes; 1 suits a short side of 720 pixels at an arm's length."""
    opacity: float = 0.8
    """Opacity of the surfaces, 0-1. At 0.8 white text on a surface has a contrast of 10:1 over pure white."""
    surface: RGB = (13, 18, 26)
    text: RGB = (250, 252, 255)
    muted: RGB = (196, 204, 214)
    accent: RGB = (52, 211, 153)
    quiet: RGB = (148, 160, 176)
    header: bool = True
    """Whether the stream's name and the time are drawn."""
    panel: bool = True
    """Whether the answers are drawn."""
    marks: bool = True
    """Whether the regions are outlined."""

    def __post_init__(self) -> None:
        """:raises ValueError: if a value is out of range."""
        if not 0 <= self.opacity <= 1:
            raise ValueError(f"opacity must be from 0 to 1, got {self.opacity}")
        if not 0.25 <= self.scale <= 4:
            raise ValueError(f"scale must be from 0.25 to 4, got {self.scale}")
        if self.topk < 1:
            raise ValueError(f"topk must be at least 1, got {self.topk}")
