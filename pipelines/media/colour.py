"""The colour matrices, one row for each: coefficients, and the codes of H.273, of FFmpeg's scaler and of FFmpeg's filters."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.frame import Matrix


@dataclass(frozen=True, slots=True)
class Coefficients:
    """One matrix from R'G'B' to Y'CbCr (ITU-T H.273, table 4)."""

    kr: float
    """Share of red in luma."""
    kb: float
    """Share of blue in luma."""
    code: int
    """MatrixCoefficients of H.273, as FFmpeg writes them into frames and streams (AVColorSpace)."""
    filter_name: str
    """The value of `colorspace=` in a filter graph."""


COEFFICIENTS: dict[Matrix, Coefficients] = {
    "bt601": Coefficients(0.299, 0.114, 6, "smpte170m"),
    "bt709": Coefficients(0.2126, 0.0722, 1, "bt709"),
    "bt2020": Coefficients(0.2627, 0.0593, 9, "bt2020nc"),
    "fcc": Coefficients(0.30, 0.11, 4, "fcc"),
    "smpte240m": Coefficients(0.212, 0.087, 7, "smpte240m"),
}
MATRICES: dict[int, Matrix] = {**{row.code: matrix for matrix, row in COEFFICIENTS.items()}, 5: "bt601", 10: "bt2020"}
"""AVColorSpace -> matrix. Every other value, including "unspecified", is read as BT.601, as the ffmpeg command line does.

5 is BT.601 with 625 lines, which has the coefficients of 6. 10 is BT.2020 with constant luminance and is read as 9.
"""
_SCALER_BT601 = 5


def scaler_code(matrix: Matrix) -> int:
    """FFmpeg's scaler code of a matrix (SWS_CS_*): the code of H.273, except for BT.601."""
    return _SCALER_BT601 if matrix == "bt601" else COEFFICIENTS[matrix].code
