"""Int8Record: how the int8 form of a model compares with fp32. It is kept beside the form, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.choices import Fit
from pipelines.tasks.classification import AGREEMENT, MEAN_COSINE, SURE_AGREEMENT, SURE_P, ClassAgreement


@dataclass(frozen=True, slots=True)
class Int8Record:
    """agreement: of int8 with fp32, on frames that did not calibrate it; passed: whether the gate let it pass."""

    agreement: ClassAgreement
    passed: bool
    ms_a_frame: Mapping[str, Mapping[str, float]]
    """Milliseconds of a frame, by precision ("fp32", "int8") and by the size of the batch."""
    size_mb: Mapping[str, float]
    """MB of the files, by precision."""
    machine: Mapping[str, Any]
    calibrated_on: int
    """Frames that calibrated it."""
    sources: int
    """Sources of all frames."""
    fit: Fit

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **self.agreement.as_dict(),
            "passed": self.passed,
            "ms_a_frame": self.ms_a_frame,
            "size_mb": self.size_mb,
            "machine": self.machine,
            "calibrated_on": self.calibrated_on,
            "sources": self.sources,
            "fit": self.fit,
        }

    @staticmethod
    def from_dict(form: Mapping[str, Any]) -> Int8Record:
        """The record that `as_dict` gave.

        :raises KeyError: if it is no such form.
        """
        of_agreement = ("frames", "sure_frames", "agreement", "sure_agreement", "cosine", "least_cosine")
        own = ("passed", "ms_a_frame", "size_mb", "machine", "calibrated_on", "sources", "fit")
        return Int8Record(ClassAgreement(*(form[name] for name in of_agreement)), *(form[name] for name in own))

    def figures(self) -> str:
        """The agreement in one line."""
        like, sure = self.agreement, "none of which fp32 is sure"
        if like.sure_agreement is not None:
            sure = f"in {percent(like.sure_agreement)} % of the {like.sure_frames} sure ones"
        return (
            f"on {like.frames} frames that did not calibrate it, int8 agrees with fp32 in "
            f"{percent(like.agreement)} %, {sure}, mean cosine {like.cosine:.4f}"
        )

    def gate(self) -> str:
        """The limits that it was judged by."""
        sure = self.agreement.sure_agreement is not None
        least = f"{100 * SURE_AGREEMENT:g} % of the sure ones" if sure else f"{100 * AGREEMENT:g} % of all frames"
        return f"{least}, mean cosine {MEAN_COSINE:g}"

    def forced(self) -> str:
        """A remark about a form that the gate had refused; empty for any other."""
        return "" if self.passed else ", below the gate, kept by `force`"

    def table(self) -> list[str]:
        """All of it in lines for the terminal."""
        like, ms, mb = self.agreement, self.ms_a_frame, self.size_mb
        times = "; ".join(f"batch {size}: {ms['int8'][size]:.2f}, fp32 {ms['fp32'][size]:.2f}" for size in ms["int8"])
        frames = f"{self.calibrated_on} calibrated, {like.frames} others compared, sources: {self.sources}"
        agreed = f"{percent(like.agreement)} %"
        if like.sure_agreement is not None:
            sure = f"{percent(like.sure_agreement)} % of {like.sure_frames} frames (at least {100 * SURE_AGREEMENT:g} %)"
            agreed += f"; where fp32 is sure (p > {SURE_P:g}) {sure}"
        else:
            agreed += f" (at least {100 * AGREEMENT:g} %: fp32 is sure of no frame, p > {SURE_P:g}, so all are judged)"
        cosine = f"{like.cosine:.4f} in the mean, {like.least_cosine:.4f} the least"
        return [
            f"frames            {frames}",
            f"same best label   {agreed}",
            f"cosine of logits  {cosine} (in the mean at least {MEAN_COSINE:g})",
            f"size              {mb['int8']:.1f} MB, fp32 {mb['fp32']:.1f} MB",
            f"ms a frame        {times}",
        ]


def percent(share: float) -> str:
    """A share in percent, rounded down to a tenth, so that 100 means all."""
    return f"{int(1000 * share + 1e-6) / 10:g}"
