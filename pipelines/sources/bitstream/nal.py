"""The NAL unit types of H.264 (table 7-1) and H.265 (table 7-1) that this package uses."""

from __future__ import annotations

from typing import Final


class H264Nal:
    """Types of H.264: the last five bits of the first byte."""

    SLICE: Final = 1
    PARTITION_A: Final = 2
    PARTITION_B: Final = 3
    PARTITION_C: Final = 4
    IDR: Final = 5
    SEI: Final = 6
    SPS: Final = 7
    PPS: Final = 8
    FILLER: Final = 12
    SPS_EXTENSION: Final = 13
    SUBSET_SPS: Final = 15


class H265Nal:
    """Types of H.265: the six bits after the first bit of the first byte. Types below 32 are slices."""

    RASL: Final = (8, 9)
    BLA: Final = range(16, 19)
    IDR: Final = (19, 20)
    CRA: Final = 21
    IRAP: Final = range(16, 24)
    """Key pictures, with the reserved types."""
    VPS: Final = 32
    SPS: Final = 33
    PPS: Final = 34
    END_OF_SEQUENCE: Final = 36
    FILLER: Final = 38
    SEI: Final = 39
    SUFFIX_SEI: Final = 40
