"""NAL unit types of H.264 (table 7-1) and H.265 (table 7-1), as far as anything here asks for them."""

from __future__ import annotations

from typing import Final


class H264Nal:
    """In the last five bits of the first octet."""

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
    """In the six bits behind the first one of the first octet. Below 32: slices."""

    RASL: Final = (8, 9)
    BLA: Final = range(16, 19)
    IDR: Final = (19, 20)
    CRA: Final = 21
    IRAP: Final = range(16, 24)
    """Key pictures, of kinds that are reserved too."""
    VPS: Final = 32
    SPS: Final = 33
    PPS: Final = 34
    END_OF_SEQUENCE: Final = 36
    FILLER: Final = 38
    SEI: Final = 39
    SUFFIX_SEI: Final = 40
