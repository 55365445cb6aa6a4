"""Pads anywhere in a row, and many sequences in one row, both brought to one form: real time steps first.

What follows the real steps of a row can then be left out of the state by its length alone.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mamba2.shapes import shaped


@shaped
def align(
    u: Float[Tensor, "batch time d_model"], mask: Bool[Tensor, "batch time"]
) -> tuple[Float[Tensor, "batch time d_model"], Int[Tensor, "batch time"]]:
    """Moves the real steps of each row to its front, in their order, and makes the pads zero; and where each came from.

    >>> u = torch.tensor([[[9.0], [1.0], [9.0], [2.0]]])
    >>> aligned, order = align(u, torch.tensor([[False, True, False, True]]))
    >>> aligned.flatten().tolist(), order.tolist()
    ([1.0, 2.0, 0.0, 0.0], [[1, 3, 0, 2]])
    """
    order = torch.argsort((~mask).int(), dim=1, stable=True)
    # Not a product: a pad may hold NaN, and neither its value nor its gradient may come through.
    blank = torch.where(mask[..., None], u, 0.0)
    return blank.gather(1, order[..., None].expand_as(u)), order


@shaped
def restore(
    y: Float[Tensor, "batch time d_model"], order: Int[Tensor, "batch time"], mask: Bool[Tensor, "batch time"]
) -> Float[Tensor, "batch time d_model"]:
    """Puts aligned steps back where they came from; zeros at the pads.

    >>> y, order = torch.tensor([[[1.0], [2.0], [0.0], [0.0]]]), torch.tensor([[1, 3, 0, 2]])
    >>> restore(y, order, torch.tensor([[False, True, False, True]])).flatten().tolist()
    [0.0, 1.0, 0.0, 2.0]
    """
    return torch.where(mask[..., None], y.gather(1, order.argsort(1)[..., None].expand_as(y)), 0.0)
