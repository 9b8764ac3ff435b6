"""Names of classes: ImageNet's, and those of a file."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import UsageError, reason


def imagenet_names() -> tuple[str, ...]:
    """The 1000 class names of ImageNet as torchvision has them."""
    from torchvision.models import ResNet50_Weights

    return tuple(ResNet50_Weights.DEFAULT.meta["categories"])


def read_labels(path: Path) -> tuple[str, ...]:
    """A UTF-8 file in which line k, counted from 0, names class k exactly; an empty line is an empty name.

    :raises UsageError: if it cannot be read, or names nothing.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read the labels {str(path)!r}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the labels {str(path)!r} are not UTF-8 (byte {error.start}); save the file as UTF-8") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise UsageError(f"the labels {str(path)!r} are empty; line k, from 0, must name class k")
    return tuple(line.removesuffix("\r") for line in lines)
