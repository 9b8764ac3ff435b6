"""Converted models on disk, each with what preprocessing, labels and the scheduler need beside it.

A second start reads everything from here and imports neither torch nor timm. One folder for each model identity and set
of versions; written whole into a temporary folder and renamed, so that two processes may convert at once.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError
from pipelines.predict.preprocess import InputSpec
from pipelines.predict.profile import Timing

FORMAT = 2
"""Raised when what is stored changes its meaning."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a converted model. `batch`: the only batch size it takes; None: any.

    `choice`: what measuring both engines said, for `--engine auto`.
    """

    input: InputSpec
    names: tuple[str, ...] | None
    batch: int | None
    choice: Mapping[str, Any]


class Stored:
    """One model's folder: `model.xml` and `model.bin` for OpenVINO, `facts.json`, and profiles by engine and precision."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.xml"

    def whole(self) -> bool:
        """Whether model and facts are there and the facts can be read."""
        try:
            self.facts()
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return self.model.is_file()

    def facts(self) -> ModelFacts:
        raw = json.loads((self.folder / "facts.json").read_text())
        spec = raw["input"]
        spec = InputSpec(**{**spec, "mean": tuple(spec["mean"]), "std": tuple(spec["std"])})
        names = raw["names"]
        return ModelFacts(spec, tuple(names) if names is not None else None, raw["batch"], raw["choice"])

    def profile(self, key: str) -> dict[int, Timing] | None:
        """The figures of an earlier start on this machine, by batch size; None where there are none."""
        try:
            raw = json.loads((self.folder / f"profile-{_slug(key)}.json").read_text())
            return {int(b): Timing(*t) for b, t in raw.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def keep_profile(self, key: str, table: Mapping[int, Timing]) -> None:
        """Remember figures for the next start. A full disk is no reason to fail: the next start measures again."""
        try:
            _write(self.folder / f"profile-{_slug(key)}.json", {b: (t.median_s, t.p99_s) for b, t in table.items()})
        except OSError:
            return


class ModelStore:
    """The folder of all converted models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, identity: str, convert: Callable[[Path], ModelFacts]) -> Stored:
        """The stored model of this identity; `convert(folder)` writes `model.xml` and gives the facts if it is new.

        :raises UsageError: if it cannot be written.
        """
        versions = f"openvino {importlib.metadata.version('openvino')} format {FORMAT}"
        key = hashlib.sha256(f"{identity} {versions}".encode()).hexdigest()[:20]
        stored = Stored(self.folder / key)
        if stored.whole():
            return stored
        try:
            self._make(stored, key, convert)
        except OSError as error:
            raise UsageError(
                f"converted models cannot be kept in {str(self.folder)!r}: {error.strerror}; "
                "make it a folder that can be written, with room, or set WATCHLINE_CACHE to another"
            ) from error
        return stored

    def _make(self, stored: Stored, key: str, convert: Callable[[Path], ModelFacts]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=self.folder))
        try:
            facts = convert(fresh)
            _write(fresh / "facts.json", asdict(facts))
            if not stored.whole():
                shutil.rmtree(stored.folder, ignore_errors=True)  # what is left of a model that was deleted in part
            try:
                fresh.rename(stored.folder)
            except OSError:
                # Another process was faster; what it wrote is as good. Anything else shows when the model is read.
                if not stored.whole():
                    raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _write(path: Path, content: Any) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)
