"""A network or an .onnx file -> an OpenVINO model with uint8 input that normalises inside and takes any batch."""

from __future__ import annotations

import errno
import io
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from pipelines.errors import UsageError
from pipelines.predict.engines.openvino_import import import_openvino
from pipelines.predict.loaded_model import LoadedModel
from pipelines.predict.preprocess import InputSpec, resize_of


def from_network(network: LoadedModel) -> Any:
    """:raises UsageError: if OpenVINO cannot take the network."""
    ov = import_openvino()
    import torch

    spec = network.input
    batch = network.batch or -1
    example = torch.zeros(network.batch or 1, 3, spec.height, spec.width)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            # The converter traces with torch.jit, which torch calls deprecated. Users cannot change that.
            warnings.simplefilter("ignore")
            if network.program is not None:
                model = ov.convert_model(network.program)
                model.reshape([batch, 3, spec.height, spec.width])
            else:
                model = ov.convert_model(network.module, example_input=example, input=[batch, 3, spec.height, spec.width])
    except Exception as error:
        raise UsageError(f"OpenVINO cannot convert this network ({_reason(error)}); use `engine` torch") from error
    return with_uint8_input(model, spec)


def from_onnx(path: Path) -> tuple[Any, InputSpec, int | None]:
    """The model, its input and its only batch size (None: any).

    :raises UsageError: if it cannot be read or is no classifier of pictures.
    """
    import_openvino()
    from openvino.frontend import FrontEndManager

    # `read_model` would try every format on a file that is no ONNX file, and each reader prints its complaint.
    reader = FrontEndManager().load_by_framework("onnx")
    try:
        model = reader.convert(reader.load(str(path)))
    except Exception as error:
        raise UsageError(f"{str(path)!r} is not an ONNX model that OpenVINO reads: {_reason(error)}") from error
    shape = model.input(0).partial_shape if len(model.inputs) == 1 else None
    if shape is None or shape.rank.is_dynamic or len(shape) != 4 or any(shape[k].is_dynamic for k in (2, 3)):
        raise UsageError(f"{str(path)!r} must have one input of shape (batch, 3, height, width), got {model.inputs}")
    height, width = shape[2].get_length(), shape[3].get_length()
    if shape[1].is_dynamic or shape[1].get_length() != 3:
        raise UsageError(f"{str(path)!r} takes {shape[1]} channels; a model of 3 (RGB) is needed")
    batch = None if shape[0].is_dynamic else shape[0].get_length()
    if batch is not None:
        batch = _free_batch(model, batch, height, width)
    spec = InputSpec(height, width, resize_of(min(height, width), 0.875))
    return with_uint8_input(model, spec), spec, batch


def _free_batch(model: Any, batch: int, height: int, width: int) -> int | None:
    """Make the batch dynamic where the graph allows it; else it stays as it is."""
    try:
        model.reshape([-1, 3, height, width])
        free = all(o.partial_shape.rank.is_dynamic or o.partial_shape[0].is_dynamic for o in model.outputs)
    except RuntimeError:
        free = False
    if free:
        return None
    # A graph that reshapes to a size of its own takes any input, and fails when it runs: its answer keeps the batch.
    model.reshape([batch, 3, height, width])
    return batch


def with_uint8_input(model: Any, spec: InputSpec) -> Any:
    """Put the cast and the normalisation in front, folded by OpenVINO into the first layer where it can."""
    ov = import_openvino()
    from openvino.preprocess import PrePostProcessor

    _check_output(model)
    steps = PrePostProcessor(model)
    steps.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NCHW"))
    steps.input().model().set_layout(ov.Layout("NCHW"))
    steps.input().preprocess().convert_element_type(ov.Type.f32).mean([255 * m for m in spec.mean]).scale(
        [255 * s for s in spec.std]
    )
    steps.output().tensor().set_element_type(ov.Type.f32)
    return steps.build()


def _check_output(model: Any) -> None:
    shape = model.output(0).partial_shape if len(model.outputs) == 1 else None
    if shape is None or shape.rank.is_dynamic or len(shape) != 2 or shape[1].is_dynamic:
        raise UsageError(f"the model is no classifier: one output of shape (batch, classes) is needed, got {model.outputs}")


def save(model: Any, path: Path) -> None:
    """Write .xml and .bin in full precision: the engine chooses its precision when it compiles the model.

    :raises OSError: if they cannot be written.
    """
    ov = import_openvino()

    try:
        ov.save_model(model, str(path), compress_to_fp16=False)
    except RuntimeError as error:
        # OpenVINO says only "iostream error". Another write to the same disk fails with the system's reason.
        _write_as_much(path.with_suffix(".bin"))
        raise OSError(errno.EIO, _reason(error), str(path)) from error


def _write_as_much(path: Path) -> None:
    """:raises OSError: if the disk takes no more bytes at the end of the file."""
    with path.open("ab") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def _reason(error: BaseException) -> str:
    """The last line of OpenVINO's error, without the names of its source files."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
