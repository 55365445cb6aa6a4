"""The depthwise causal convolution in one pass over the sequence, and its derivative."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.ops.conv import causal_conv1d
from mamba2.shapes import shaped


@shaped
def conv_forward(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time conv"],
    weight: Float[Tensor, "conv width"],
    bias: Float[Tensor, " conv"] | None,
    past: Float[Tensor, "batch width-1 conv"],
) -> Float[Tensor, "batch time conv"]:
    """`causal_conv1d` without the past that follows; the past that goes before meets the first outputs only."""
    time, reach = x.shape[1], weight.shape[1] - 1
    y = _depthwise(x, weight, bias, padding=reach)[:, :time]
    edge = min(reach, time)
    if edge:
        y[:, :edge] += causal_conv1d(past.new_zeros(len(past), edge, past.shape[2]), weight, None, past)[0]
    return y


@shaped
def conv_backward(
    dy: Float[Tensor, "batch time conv"],
    x: Float[Tensor, "batch time conv"],
    weight: Float[Tensor, "conv width"],
    past: Float[Tensor, "batch width-1 conv"],
) -> tuple[
    Float[Tensor, "batch time conv"],
    Float[Tensor, "conv width"],
    Float[Tensor, " conv"],
    Float[Tensor, "batch width-1 conv"],
]:
    """The gradients of x, weight, bias and past.

    x[s] meets weight[width - 1 - j] at the output j steps later, so the gradient of x is the mirrored convolution:

        dx[s] = Σ_j weight[width-1-j]·dy[s+j]        dweight[width-1-j] = Σ_t dy[t]·x[t-j]        x[-1], x[-2], … = past
    """
    time, reach = x.shape[1], weight.shape[1] - 1
    later = F.pad(dy, (0, 0, 0, reach))
    dx = _depthwise(later, weight.flip(1), None, padding=0)
    dpast = torch.zeros_like(past)
    if reach:
        dpast += _depthwise(F.pad(later[:, :reach], (0, 0, reach, 0)), weight.flip(1), None, padding=0)[:, :reach]
    dweight = torch.empty_like(weight)
    for j in range(reach + 1):
        early = min(j, time)
        tap = (x[:, : time - early] * dy[:, early:]).sum((0, 1))
        dweight[:, reach - j] = tap + (past[:, reach - j : reach - j + early] * dy[:, :early]).sum((0, 1))
    return dx, dweight, dy.sum((0, 1)), dpast


def _depthwise(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch _ conv"],
    weight: Float[Tensor, "conv width"],
    bias: Float[Tensor, " conv"] | None,
    *,
    padding: int,
) -> Float[Tensor, "batch _ conv"]:
    """Torch's grouped convolution on images one pixel high: it knows the layout with channels last, conv1d does not."""
    image = x.contiguous().transpose(1, 2).unsqueeze(2)
    y: Tensor = F.conv2d(image, weight[:, None, None], bias, padding=(0, padding), groups=x.shape[2])
    return y.squeeze(2).transpose(1, 2)
