"""How close two results have to be, and what is said when they are not."""

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    """The largest error allowed, relative to the largest value of the scale."""

    outputs: float
    gradients: float


TOLERANCES = {
    torch.float64: Tolerance(outputs=1e-10, gradients=1e-10),
    torch.float32: Tolerance(outputs=1e-5, gradients=1e-4),
}
"""The one table; the same at home and in CI."""


def require_close(
    what: str, actual: Tensor, expected: Tensor, *, scale: Tensor | None = None, tolerance: float | None = None
) -> None:
    """max|actual - expected| ≤ tolerance · max|scale|, in float64.

    The scale is `expected` when not given. Where terms cancel and `expected` is small, gradients above all, it is the
    result of the same computation on absolute values. The tolerance is the outputs' of the dtype when not given.

    Raises:
        AssertionError: shape or dtype differ, a value is too far off, or either side has a NaN or an infinity.
    """
    if actual.shape != expected.shape:
        raise AssertionError(f"{what}: shape is {tuple(actual.shape)}, expected {tuple(expected.shape)}.")
    if actual.dtype != expected.dtype:
        raise AssertionError(f"{what}: dtype is {actual.dtype}, expected {expected.dtype}.")
    if actual.numel() == 0:
        return
    allowed = TOLERANCES[actual.dtype].outputs if tolerance is None else tolerance
    got, wanted = actual.detach().double(), expected.detach().double()
    error = (got - wanted).abs()
    # An infinite error is the worst; so is one that is no number.
    worst = int(error.nan_to_num(nan=torch.inf, posinf=torch.inf).argmax())
    largest = float((wanted if scale is None else scale.detach().double()).abs().max())
    measured = float(error.flatten()[worst]) / largest if largest else float(error.flatten()[worst])
    if not measured <= allowed:
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), error.shape))
        raise AssertionError(
            f"{what}: error {measured:.1e} is above {allowed:.0e}; worst at {index}: "
            f"{got[index].item():.9g}, expected {wanted[index].item():.9g}."
        )
