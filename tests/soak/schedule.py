"""The faults of the cameras and their times."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["killed", "frozen", "no pictures", "restarted", "another size", "clock restarted"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTAGES: frozenset[Kind] = frozenset({"killed", "frozen", "no pictures", "restarted"})
"""Those that a camera cannot be read through."""
LASTS: dict[Kind, tuple[float, float]] = {"killed": (3, 7), "frozen": (7, 9), "no pictures": (7, 9)}
"""Seconds; longer than the read limit of 5 s where only that can notice."""
TAIL_S = 14.0
"""At the end nothing more happens: the last camera has so long to be seen again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """From `at_s` (seconds since the beginning), for so long; 0 where it is over at once."""

    at_s: float
    camera: int
    kind: Kind
    for_s: float = 0.0


def schedule(length_s: float, every_s: float, seed: int, cameras: int) -> list[Fault]:
    """The cameras take turns. Their faults are drawn at random, every kind once before one comes again."""
    dice = random.Random(seed)
    faults: list[Fault] = []
    deck: list[Kind] = []
    turn = 0
    while (at_s := (turn + 1) * every_s) + max(most for _, most in LASTS.values()) + TAIL_S <= length_s:
        deck = deck or dice.sample(KINDS, len(KINDS))
        kind = deck.pop()
        faults.append(Fault(at_s, turn % cameras, kind, dice.uniform(*LASTS.get(kind, (0, 0)))))
        turn += 1
    return faults
