"""The README's picture of the services. Run by the interpreter that has matplotlib: plot.py RESULT.json PICTURE.png"""

from __future__ import annotations

import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS, THEIRS = "#1f6f8b", "#b0b7bd"


def main(result: str, picture: str) -> None:
    """A bar for each service: the median rate, with a line from the worst round to the best."""
    with open(result, encoding="utf-8") as file:
        services = json.load(file)["services"]
    kinds = {"poisson": "Poisson arrivals", "constant": "constant arrivals"}
    figure, panels = plt.subplots(1, len(kinds), figsize=(8, 0.45 * len(services) + 1), layout="constrained", sharey=True)
    for panel, (kind, words) in zip(panels, kinds.items(), strict=True):
        rates = {name: [r[kind]["plan"]["rate"] if r[kind] else 0 for r in rounds] for name, rounds in services.items()}
        ranked = sorted(rates, key=lambda name: statistics.median(rates[name]))
        medians = [statistics.median(rates[name]) for name in ranked]
        spread = [
            [m - min(rates[name]) for name, m in zip(ranked, medians, strict=True)],
            [max(rates[name]) - m for name, m in zip(ranked, medians, strict=True)],
        ]
        colours = [OURS if name == "Watchline" else THEIRS for name in ranked]
        panel.barh(ranked, medians, xerr=spread, color=colours, error_kw={"lw": 1, "ecolor": "#444"})
        for k, rate in enumerate(medians):
            panel.text(rate + spread[1][k], k, f"  {rate:.0f}", va="center", fontsize=9)
        panel.set_title(f"requests/s at p99 within 50 ms, {words}", loc="left", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(0, 1.2 * max(max(values) for values in rates.values()) or 1)
    figure.savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
