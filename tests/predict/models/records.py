"""A record of an int8 form, for tests that need one and not its figures."""

from __future__ import annotations

from pipelines.predict.models.record import Int8Record
from pipelines.tasks.classification import ClassAgreement


def record(name: str = "any") -> Int8Record:
    """A record that passed. name: tells it from another one."""
    return Int8Record(ClassAgreement(88, 57, 0.9, 1.0, 0.996, 0.99), True, {}, {"int8": 5.2}, {"of": name}, 44, 1, "crop")
