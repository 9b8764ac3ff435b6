"""Device, engine and precision, from names and from the measurements of a model's first use, with the reason in words."""

from __future__ import annotations

import shlex
from pathlib import Path

from pipelines.cores import cpu_name
from pipelines.errors import UsageError
from pipelines.predict.models import catalog
from pipelines.predict.models.kinds import KINDS, EngineKind, kind_of
from pipelines.predict.models.store import Calibrated, Choice, ModelFacts, Stored


def device(wanted: str) -> str:
    """The device that `--device` means. torch, which takes 2 s, is imported only where a driver says there is a GPU.

    :raises UsageError: if a GPU is asked for and there is none.
    """
    if wanted == "cpu" or (wanted == "auto" and not _has_nvidia()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        name = "cuda:0" if wanted in ("auto", "cuda") else wanted
        index = int(name.split(":")[1])
        if index < torch.cuda.device_count():
            return name
        raise UsageError(f"`device` {wanted}: there are only {torch.cuda.device_count()} GPUs, counted from cuda:0")
    if wanted == "auto":
        return "cpu"
    raise UsageError(f"`device` {wanted}: no CUDA device on this machine; use `device` cpu or auto")


def devices(wanted: str, workers: int) -> tuple[str, ...]:
    """A device for each of so many workers: a GPU of its own, or the CPU, which they share.

    :raises UsageError: if there are fewer GPUs.
    """
    first = device(wanted)
    if first == "cpu" or workers == 1:
        return (first,) * workers
    import torch

    if wanted.startswith("cuda:"):
        raise UsageError(f"`device` {wanted} names one GPU, and `workers` {workers} need one each; use `device` cuda")
    if workers > torch.cuda.device_count():
        here = torch.cuda.device_count()
        raise UsageError(f"`workers` {workers}: each needs a GPU of its own, and there are {here}; use `workers` {here}")
    return tuple(f"cuda:{k}" for k in range(workers))


def _has_nvidia() -> bool:
    return Path("/dev/nvidiactl").exists() or Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def kinds(wanted: str, device: str, model: catalog.ModelKind) -> list[EngineKind]:
    """The kinds of engine that may run a model. wanted: a name, or auto; device: "cpu" or "cuda:N".

    :raises UsageError: if there is no such kind, or it does not run on the device.
    """
    if wanted == "auto":
        return [kind for kind in KINDS.values() if kind.runs_on(device) and model not in kind.not_read]
    kind = kind_of(wanted)
    if not kind.runs_on(device):
        there = [other.name for other in KINDS.values() if other.runs_on(device)]
        raise UsageError(f"`engine` {wanted} does not run on {device}; use `engine` {' or '.join(there)}, or another `device`")
    return [kind]


def engine(choice: Choice, wanted: str, precision: str, device: str, *, stills: bool) -> tuple[str, str, str]:
    """Engine and precision, and the reason in words. wanted, precision: a name, or auto.

    stills: all work is pictures. No caller waits for one, so that `auto` takes the exact way: bf16 moves a probability by up to
    0.06 here and there, which is more than a picture's own path through a video does.

    :raises UsageError: if the engine does not run the precision on this machine.
    """
    where = "on the CPU" if device == "cpu" else f"on {device}"
    kind, reason = (kind_of(choice.engine), choice.engine_why) if wanted == "auto" else (kind_of(wanted), "asked for")
    if wanted == "auto" and precision not in ("auto", *kind.precisions):
        others = [other for other in KINDS.values() if other.runs_on(device) and precision in other.precisions]
        kind, reason = (others[0], f"it has {precision}") if others else (kind, reason)
    check_precision(kind, precision)
    if precision == "int8":
        return kind.name, precision, f"{kind.name} int8 {where} (asked for)"
    if precision == "auto":
        precision = choice.video_precision if kind.faster and not stills else "fp32"
        reason += f"; {precision}: {'pictures are worth it' if stills else choice.video_precision_why}"
    return kind.name, precision, f"{kind.name} {precision} {where} ({reason})"


def check_precision(kind: EngineKind, precision: str) -> None:
    """:raises UsageError: if the kind of engine does not run the precision on this machine. auto is always allowed."""
    if precision == "auto":
        return
    if precision not in kind.precisions:
        raise UsageError(
            f"`precision` {precision}: the engine {kind.name} has {', '.join(kind.precisions)}; use one of them or auto"
        )
    if (why := kind.missing(precision)) is not None:
        raise UsageError(f"`precision` {precision}: {why}; use fp32 or auto")


def single_ms(facts: ModelFacts, precision: str) -> float | None:
    """CPU milliseconds of a frame on one thread, of the nearest precision that was measured; None if none was."""
    known = facts.choice.single_ms
    return known.get(precision, known.get("bf16", known.get("fp32")))


def calibrated(stored: Stored, model: str) -> Calibrated:
    """The int8 form of a model for this CPU.

    :raises UsageError: if there is none; it names the command that makes one.
    """
    found = stored.calibrated(cpu_name())
    if found is None:
        raise uncalibrated(model)
    return found


def uncalibrated(model: str) -> UsageError:
    """The error for int8 without an int8 form and without files to make one from."""
    why = f"the model {model!r} has not been calibrated on this machine, and only a run on files begins with that"
    return UsageError(f"`precision` int8: {why}; run: {calibrating(model)}")


def calibrating(model: str) -> str:
    """How a model is calibrated, in words."""
    return f"`calibrate` `model` {shlex.quote(model)} SOURCE..."
