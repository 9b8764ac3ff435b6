"""A folder of the seven stills through the whole program: the reference's probabilities to 0.04."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from samples import FOLDER
from tests.command import watchline

PHOTOS = (FOLDER / "photos", Path(__file__).parent / "data/photos")
NEAR_TIE = "butterfly.jpg"


@pytest.mark.usefixtures("first_use")
def test_the_stills(place: Path) -> None:
    reference = json.loads((FOLDER / "reference.json").read_text(encoding="utf-8"))
    (place / "stills").mkdir()
    for name in reference:
        shutil.copy(next(k for folder in PHOTOS if (k := folder / name).exists()), place / "stills")
    done = watchline("run", "stills", "--topk", "1000", "--no-show", "--jsonl", "-")
    assert done.code == 0, done.err
    assert [line["stream"] for line in done.lines] == ["stills"] * 7
    for name, line in zip(sorted(reference), done.lines, strict=True):
        p = {label["id"]: label["p"] for label in line["labels"]}
        for label in reference[name]:
            assert p[label["id"]] == pytest.approx(label["p"], abs=0.04), (name, label["name"])
        if name != NEAR_TIE:
            top = line["labels"][0]
            assert (top["id"], top["name"]) == (reference[name][0]["id"], reference[name][0]["name"])
