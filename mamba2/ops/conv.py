"""The depthwise causal convolution in front of the scan, over a sequence and for one time step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mamba2.shapes import shaped


@shaped
def causal_conv1d(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch time conv"],
    weight: Float[Tensor, "conv width"],
    bias: Float[Tensor, " conv"] | None,
    past: Float[Tensor, "batch width-1 conv"],
    lengths: Int[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, "batch time conv"], Float[Tensor, "batch width-1 conv"]]:
    """y[t] = bias + Σ_k weight[k]·x[t - width + 1 + k], and the past after x[-1]; `past` holds the inputs before x[0].

    With `lengths`, a row is real only up to its length, and the past is the one after its last real step.

    >>> x = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> y, past = causal_conv1d(x, torch.tensor([[10.0, 1.0]]), None, torch.zeros(1, 1, 1))
    >>> y.flatten().tolist(), past.flatten().tolist()
    ([1.0, 12.0, 23.0], [3.0])
    """
    time, width = x.shape[1], weight.shape[1]
    seen = torch.cat((past, x), dim=1)
    y = sum((weight[:, k] * seen[:, k : k + time] for k in range(1, width)), start=weight[:, 0] * seen[:, :time])
    if lengths is None:
        after = _copy(seen[:, time:])
    else:
        last = lengths[:, None] + torch.arange(width - 1, device=x.device)
        after = seen.gather(1, last[..., None].expand(-1, -1, x.shape[2]))
    return y if bias is None else y + bias, after


@shaped
def causal_conv1d_step(  # torchtyc: ignore[unresolved-arg]
    x: Float[Tensor, "batch 1 conv"],
    weight: Float[Tensor, "conv width"],
    bias: Float[Tensor, " conv"] | None,
    past: Float[Tensor, "batch width-1 conv"],
) -> tuple[Float[Tensor, "batch 1 conv"], Float[Tensor, "batch width-1 conv"]]:
    """One time step of `causal_conv1d`, as one product with the window of the last `width` inputs."""
    window = torch.cat((past, x), dim=1)
    y = (window * weight.T).sum(1, keepdim=True)
    return y if bias is None else y + bias, _copy(window[:, 1:])


def _copy(view: Float[Tensor, "batch width-1 conv"]) -> Float[Tensor, "batch width-1 conv"]:
    """What is kept of a sequence, without the rest of it, and with the strides of any state."""
    return view.clone(memory_format=torch.contiguous_format)
