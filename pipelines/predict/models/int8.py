"""fp32 -> int8 after training, with NNCF, in a way that holds on pictures unlike those of the calibration.

NNCF's defaults do not. Measured on the default model (2026-11-30, NNCF 3.4, OpenVINO 2026.4, AVX512-VNNI, preprocessing as in a
run, fit crop), calibrated on 43 frames of bigbuckbunny.mp4 only, compared with fp32 on other frames of it, on every 4th of
bikes.mp4, on 40 of vtest.avi and on 7 photos. Mean cosine of the logits (least), and the same best label where fp32 is
sure (p > 0.3):

    way                                     bigbuckbunny         bikes                vtest   photos   MB    ms a frame (16)
    fp32                                                                                               18.5  6.6
    bf16                                    0.998 (0.996) 1.00   0.998 (0.992) 1.00   0.999   0.999    18.5  3.5
    NNCF as it is: fast bias correction     0.991 (0.986) 1.00   0.872 (0.809) 0.50   0.890   0.923    4.8   2.1
      full bias correction                  0.988 (0.977) 1.00   0.877 (0.794) 0.50   0.887   0.925    4.8   2.1
    no overflow fix                         0.996 (0.991) 1.00   0.876 (0.796) 0.50   0.890   0.924    4.8   2.2
    and one range a tensor                  0.995 (0.987) 1.00   0.983 (0.920) 1.00   0.996   0.997    4.8   2.2
      and 3 sensitive layers left in bf16   0.997 (0.994) 1.00   0.996 (0.987) 1.00   0.998   0.998    4.8   2.5
    and kept sums, fast bias correction     0.996 (0.994) 1.00   0.995 (0.985) 1.00   0.998   0.997    4.8   2.2
    and kept sums, no bias correction       0.996 (0.994) 1.00   0.996 (0.989) 1.00   0.998   0.998    4.8   2.2   <- this

- One range a tensor: NNCF gives each channel of a depthwise layer's input a range of its own. A channel that is silent on the
  calibration's pictures is then silent for ever. It costs no time. Ranges from the least to the largest value (MINMAX) are as
  good as NNCF's means or better, by 0.001.
- No overflow fix: it spares CPUs without VNNI a saturating sum by halving the range of the first layer's weights. On such a CPU
  this model saturates (cosine 0.88); with all ranges halved it is 0.96 to 0.98. The accuracy gate,
  measured on that CPU, refuses both.
- Kept sums (`round_weights`): rounding each weight to the nearest moves the sum of a filter, and with it the mean of its
  output; one depthwise layer of 32 filters cost 0.007 of cosine alone. Rounding that keeps the sum costs nothing, and it
  removes on all pictures the shift that bias correction removes on the calibration's pictures only.
- Transformers need NNCF's way for them (smooth quantisation): a ViT-tiny with random weights went from 0.94 to 0.997.
- Frames: 8, 43 and 200 (of one clip, of all) gave the same within 0.001. Presets: MIXED and PERFORMANCE too, in time as well.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.predict.engines.openvino_import import import_openvino

Float = npt.NDArray[np.float32]
TOP = 127
"""Largest of the integers that weights become."""


def quantised(model: Path, frames: npt.NDArray[np.uint8], batch: int | None) -> Any:
    """The int8 form of a stored fp32 model, as an OpenVINO model with the same input and output. Imports torch.

    frames: (n, 3, H, W) uint8, the source of the ranges; batch: the only size that the model takes (None: any). The last batch
    is filled with the first frames.
    """
    exact = import_openvino().Core().read_model(str(model))
    round_weights(exact)
    import nncf
    from nncf.quantization.advanced_parameters import AdvancedQuantizationParameters, OverflowFix, QuantizationParameters
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    nncf.set_log_level(logging.ERROR)
    items = _batches(frames, batch or 1)
    return nncf.quantize(
        exact,
        nncf.Dataset(items),
        preset=nncf.QuantizationPreset.PERFORMANCE,
        model_type=nncf.ModelType.TRANSFORMER if attends(exact) else None,
        subset_size=len(items),
        advanced_parameters=AdvancedQuantizationParameters(
            overflow_fix=OverflowFix.DISABLE,
            disable_bias_correction=True,
            activations_quantization_params=QuantizationParameters(per_channel=False),
            activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
        ),
    )


def _batches(frames: npt.NDArray[np.uint8], size: int) -> list[npt.NDArray[np.uint8]]:
    """All frames in batches of `size`, the last one filled up from the start."""
    count = -(-len(frames) // size)
    rows = np.arange(count * size) % len(frames)
    return [frames[rows[k * size : (k + 1) * size]] for k in range(count)]


def attends(model: Any) -> bool:
    """Whether the model is a transformer: it has a softmax over more than classes."""
    kinds = ("Softmax", "ScaledDotProductAttention")
    return any(op.get_type_name() in kinds and len(op.output(0).get_partial_shape()) > 2 for op in model.get_ops())


def round_weights(model: Any) -> None:
    """Put the weights of all convolutions of an OpenVINO model on the grid that NNCF will find for them, filter by filter."""
    ov = import_openvino()
    for layer in model.get_ordered_ops():
        kind = layer.get_type_name()
        if kind not in ("Convolution", "GroupConvolution"):
            continue
        node = layer.input_value(1).get_node()
        if node.get_type_name() != "Constant" or node.get_element_type() != ov.Type.f32:
            continue  # computed, or compressed: left to NNCF's own rounding
        weights = node.get_data()
        filters = weights.shape[0] * (weights.shape[1] if kind == "GroupConvolution" else 1)
        rounded = rounded_with_sums(weights.reshape(filters, -1)).reshape(weights.shape)
        layer.input(1).replace_source_output(ov.opset13.constant(rounded).output(0))


def rounded_with_sums(filters: Float) -> Float:
    """(filters, weights) on a grid of steps of max / 127 for each filter, with the sum of each kept within half a step.

    Each weight goes to the nearest point but for the fewest that must go to the other side, which are those that lie nearest
    to the middle. The largest stays, for the grid is found by it.
    """
    step = np.abs(filters).max(axis=1, keepdims=True) / TOP
    step[step == 0] = 1
    exact = filters / step
    whole = np.round(exact)
    missing = np.round((exact - whole).sum(axis=1, keepdims=True))
    willing = (exact - whole) * np.sign(missing)
    willing[np.abs(whole) == TOP] = -1
    rank = np.argsort(np.argsort(-willing, axis=1, kind="stable"), axis=1)
    whole += np.sign(missing) * (rank < np.abs(missing))
    return (whole * step).astype(np.float32)
