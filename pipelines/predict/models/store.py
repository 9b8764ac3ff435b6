"""Converted models on disk, each with the input, the labels and the batch timings that a start needs.

A second start reads everything from here and imports neither torch nor timm. Each model identity and set of versions has one
folder. It is written into a temporary folder and renamed, so that two processes can convert at once. OpenVINO keeps compiled
models in a folder beside the model. Its own key has its version and the CPU's name; one folder serves every precision. That
key misses weights that change at the same path within a second (tried), so the compiled folder is deleted with the model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError
from pipelines.predict.models.record import Int8Record
from pipelines.predict.preprocess import InputSpec
from pipelines.predict.scheduling.profile import Timing

FORMAT = 2
"""Version of the stored files. Raise it if their meaning changes."""
CALIBRATION = 1
"""Version of the way to int8. Raise it if the way changes."""
SIZES = "sizes.json"
STALE_S = 3600.0
"""A temporary folder of this age belongs to a process that was killed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine and the precision that `auto` takes on the CPU, from the measurements at the model's conversion. The defaults
    are those of a file that only one engine reads."""

    engine: str = "openvino"
    engine_why: str = "it is the only one that reads this file"
    video_precision: str = "fp32"
    """The precision for video. Single pictures get fp32."""
    video_precision_why: str = "exact"
    single_ms: Mapping[str, float] = field(default_factory=dict)
    """CPU milliseconds of a frame on one thread, by precision; empty if they were not measured."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The description of a converted model. batch: the only batch size that it takes; None: any."""

    input: InputSpec
    names: tuple[str, ...] | None
    batch: int | None
    choice: Choice


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A folder with the int8 form of a model (`model.xml`, `model.bin`) and `record.json`, which says how it compares."""

    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model.xml"

    def record(self) -> Int8Record:
        """:raises OSError, ValueError, KeyError: if it cannot be read."""
        return Int8Record.from_dict(json.loads((self.folder / "record.json").read_text()))


class Stored:
    """One model's folder: `model.xml` and `model.bin` for OpenVINO, `facts.json`, profiles by engine and precision, and int8
    forms by CPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.xml"

    def calibrated(self, cpu: str) -> Calibrated | None:
        """The int8 form that was made on this kind of CPU; None if it is missing or incomplete."""
        found = Calibrated(self._int8(cpu))
        try:
            found.record()
        except (OSError, ValueError, KeyError):
            return None
        return found if _sealed(found.folder) else None

    def calibrate(self, cpu: str, make: Callable[[Path], Int8Record]) -> Calibrated:
        """Keep the int8 form that `make(folder)` writes as `model.xml`, in place of an earlier one; its result is the record.

        :raises UsageError: if it cannot be written. An error of `make` passes through, and the earlier form stays.
        """
        try:
            with _fresh(self.folder, "int8") as fresh:
                record = make(fresh)
                _write(fresh / "record.json", record.as_dict())
                _seal(fresh)
                self._put(fresh, self._int8(cpu))
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        return Calibrated(self._int8(cpu))

    def _put(self, fresh: Path, place: Path) -> None:
        """Replace a folder with two renames. A reader finds the old folder, the new one, or briefly none; never half of one."""
        old = fresh.with_name(f"{fresh.name}-old")
        try:
            with suppress(FileNotFoundError):
                place.rename(old)
            fresh.rename(place)
        except OSError:
            # Another process was faster. Its form is as good.
            if not (place / "record.json").is_file():
                raise
        finally:
            shutil.rmtree(old, ignore_errors=True)

    def _int8(self, cpu: str) -> Path:
        # By CPU: the figures of the record are those of its arithmetic.
        return self.folder / f"int8-{hashlib.sha256(f'{cpu} {CALIBRATION}'.encode()).hexdigest()[:12]}"

    def whole(self) -> bool:
        """Whether model and facts are there as they were written. A power cut or a full disk may leave them empty or cut."""
        try:
            self.facts()
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return _sealed(self.folder)

    def facts(self) -> ModelFacts:
        raw = json.loads((self.folder / "facts.json").read_text())
        spec = raw["input"]
        spec = InputSpec(**{**spec, "mean": tuple(spec["mean"]), "std": tuple(spec["std"])})
        names = raw["names"]
        return ModelFacts(spec, tuple(names) if names is not None else None, raw["batch"], Choice(**raw["choice"]))

    def profile(self, key: str) -> dict[int, Timing] | None:
        """The timings of an earlier start on this machine, by batch size; None if there are none."""
        try:
            raw = json.loads((self.folder / f"profile-{_slug(key)}.json").read_text())
            return {int(b): Timing(*t) for b, t in raw.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def keep_profile(self, key: str, table: Mapping[int, Timing]) -> None:
        """Keep the timings for the next start. On a full disk nothing is kept or fails: the next start measures again."""
        try:
            _write(self.folder / f"profile-{_slug(key)}.json", {b: (t.median_s, t.p99_s) for b, t in table.items()})
        except OSError:
            return


class ModelStore:
    """The folder of all converted models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, identity: str) -> Stored | None:
        """The stored model of this identity, if it is there."""
        stored = self._at(identity)
        return stored if stored.whole() else None

    def get(self, identity: str, convert: Callable[[Path], ModelFacts]) -> Stored:
        """The stored model of this identity; `convert(folder)` writes `model.xml` and gives the facts if it is new.

        :raises UsageError: if it cannot be written.
        """
        stored = self._at(identity)
        if stored.whole():
            return stored
        try:
            self._make(stored, convert)
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        return stored

    def forget_unfinished(self) -> None:
        """Remove the temporary folders of this process. Called before the process is ended while a conversion still hangs."""
        begun = f"{_prefix('*')}*"
        for folder in [*self.folder.glob(begun), *self.folder.glob(f"*/{begun}")]:
            shutil.rmtree(folder, ignore_errors=True)

    def _at(self, identity: str) -> Stored:
        versions = f"openvino {importlib.metadata.version('openvino')} format {FORMAT}"
        return Stored(self.folder / hashlib.sha256(f"{identity} {versions}".encode()).hexdigest()[:20])

    def _make(self, stored: Stored, convert: Callable[[Path], ModelFacts]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with _fresh(self.folder, stored.folder.name) as fresh:
            facts = convert(fresh)
            _write(fresh / "facts.json", asdict(facts))
            _seal(fresh)
            if not stored.whole():
                shutil.rmtree(stored.folder, ignore_errors=True)  # the rest of a model that was deleted in part
            try:
                fresh.rename(stored.folder)
            except OSError:
                # Another process was faster, and its model is as good. Any other error shows when the model is read.
                if not stored.whole():
                    raise


@contextmanager
def _fresh(parent: Path, name: str) -> Iterator[Path]:
    """A temporary folder to write in. The caller renames it; otherwise it is removed, also after an error."""
    for left in parent.glob(".*-*-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE_S:
                shutil.rmtree(left, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=_prefix(name), dir=parent))
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _prefix(name: str) -> str:
    """First part of the names of this process's temporary folders."""
    return f".{name}-{os.getpid()}-"


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"converted models cannot be kept in {str(folder)!r}: {error.strerror}; "
        "make it a folder that can be written, with room, or set `cache` to another"
    )


def _seal(folder: Path) -> None:
    """Note the sizes of the model's files."""
    _write(folder / SIZES, {path.name: path.stat().st_size for path in folder.glob("model.*")})


def _sealed(folder: Path) -> bool:
    """Whether the model's files exist with the noted sizes."""
    try:
        sizes = json.loads((folder / SIZES).read_text())
        return "model.xml" in sizes and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _write(path: Path, content: Any) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text)
