"""The README's picture of the comparison. Run by the interpreter that has matplotlib: plot.py RESULT.json PICTURE.png"""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS, THEIRS = "#1f6f8b", "#b0b7bd"


def main(result: str, picture: str) -> None:
    """A bar for each program: the median, with a line from the slowest run to the fastest."""
    with open(result, encoding="utf-8") as file:
        tasks = json.load(file)["tasks"]
    heights = [len(rows) for rows in tasks.values()]
    size = 8, 0.42 * sum(heights) + 1.1 * len(tasks)
    figure, panels = plt.subplots(len(tasks), 1, figsize=size, height_ratios=heights, layout="constrained", squeeze=False)
    for panel, (task, rows) in zip(panels[:, 0], tasks.items(), strict=True):
        ranked = sorted(rows.items(), key=lambda row: row[1]["median"])
        names = [name for name, _ in ranked]
        medians = [row["median"] for _, row in ranked]
        spread = [[row["median"] - row["min"] for _, row in ranked], [row["max"] - row["median"] for _, row in ranked]]
        colours = [OURS if name.startswith("Watchline") else THEIRS for name in names]
        panel.barh(names, medians, xerr=spread, color=colours, error_kw={"lw": 1, "ecolor": "#444"})
        for k, fps in enumerate(medians):
            panel.text(fps + spread[1][k], k, f"  {fps:.0f}", va="center", fontsize=9)
        panel.set_title(f"{task}, frames/s", loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlim(0, 1.12 * max(row["max"] for _, row in ranked))
    figure.savefig(picture, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
