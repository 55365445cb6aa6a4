"""The depthwise causal convolution in one pass over the sequence, and its derivative."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.ops.conv import causal_conv1d
from mamba2.shapes import shaped

_FEW = 64
"""Steps of which all products stay in a core's cache until they are summed."""


@shaped
def conv_forward(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time conv"],
    weight: Float[Tensor, "conv width"],
    bias: Float[Tensor, " conv"] | None,
    past: Float[Tensor, "batch width-1 conv"] | None,
) -> Float[Tensor, "batch time conv"]:
    """`causal_conv1d` without the past that follows; None is one of zeros, any other meets the first outputs only."""
    time, reach = x.shape[1], weight.shape[1] - 1
    y = _depthwise(x, weight, bias, padding=reach)[:, :time]
    edge = min(reach, time)
    if past is not None and edge:
        y[:, :edge] += causal_conv1d(past.new_zeros(len(past), edge, past.shape[2]), weight, None, past)[0]
    return y


@shaped
def conv_backward(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time conv"],
    weight: Float[Tensor, "conv width"],
    past: Float[Tensor, "batch width-1 conv"] | None,
    later: Float[Tensor, "batch time+width-1 conv"],
) -> tuple[
    Float[Tensor, "batch time conv"],
    Float[Tensor, "conv width"],
    Float[Tensor, " conv"],
    Float[Tensor, "batch width-1 conv"] | None,
]:
    """The gradients of x, weight, bias and past; `later` is dy, and zeros after it.

    x[s] meets weight[width - 1 - j] at the output j steps later, so the gradient of x is the mirrored convolution:

        dx[s] = Σ_j weight[width-1-j]·dy[s+j]        dweight[width-1-j] = Σ_s dy[s+j]·x[s]        x[-1], x[-2], … = past
    """
    reach, mirrored = weight.shape[1] - 1, weight.flip(1)
    dx = _depthwise(later, mirrored, None, padding=0)
    dweight = _correlate(x, later, reach + 1).flip(0).T
    dpast = None
    if past is not None:
        first = later[:, :reach]
        dpast = torch.zeros_like(past)
        if reach:
            dpast += _depthwise(F.pad(first, (0, 0, reach, 0)), mirrored, None, padding=0)[:, :reach]
        for j in range(1, reach + 1):
            dweight[:, reach - j] += (past[:, reach - j :] * first[:, :j]).sum((0, 1))
    return dx, dweight, later.sum((0, 1)), dpast


def _correlate(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time conv"], later: Float[Tensor, "batch time+width-1 conv"], width: int
) -> Float[Tensor, "width conv"]:
    """Σ_s x[s]·later[s+j] for each j below the width."""
    time = x.shape[1]
    rows, total = max(1, _FEW // time), x.new_zeros(width, x.shape[2])
    for start in range(0, time, _FEW):
        now, ahead = slice(start, start + _FEW), slice(start, start + _FEW + width - 1)
        for own, theirs in zip(x[:, now].split(rows), later[:, ahead].split(rows), strict=True):
            total += (own * theirs.unfold(1, width, 1).permute(3, 0, 1, 2)).sum((1, 2))
    return total


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
