"""How close two results have to be, and what is said when they are not."""

from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    """The largest error allowed, relative to the largest value of the scale."""

    outputs: float
    gradients: float
    hard: float
    """Outputs where one time step is a million times another."""


TOLERANCES = {
    torch.float64: Tolerance(outputs=1e-10, gradients=1e-10, hard=1e-10),
    torch.float32: Tolerance(outputs=1e-5, gradients=1e-4, hard=1e-4),
    torch.bfloat16: Tolerance(outputs=2e-2, gradients=2e-1, hard=2e-1),
    torch.float16: Tolerance(outputs=3e-3, gradients=3e-2, hard=3e-2),
}
"""The one table; the same at home and in CI."""

RATIO = 2.0
"""Where rounding decides, in half precision and after huge steps, so many of the textbook's own errors come on top."""


class MismatchError(AssertionError):
    """Two results that had to be the same are not.

    `error` and `allowed` are relative to the scale; they are missing where a shape, a dtype or a bit is wrong.
    """

    def __init__(self, message: str, *, error: float | None = None, allowed: float | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.allowed = allowed


def require(holds: bool, message: str) -> None:
    """Says what is wrong unless it holds.

    Raises:
        MismatchError: it does not hold.
    """
    if not holds:
        raise MismatchError(message)


def require_close(
    what: str, actual: Tensor, expected: Tensor, *, scale: Tensor | None = None, tolerance: float | None = None
) -> None:
    """max|actual - expected| ≤ tolerance · max|scale|, in float64.

    The scale is `expected` when not given. Where terms cancel and `expected` is small, gradients above all, it is the
    result of the same computation on absolute values. The tolerance is the outputs' of the dtype when not given.

    Raises:
        MismatchError: shape or dtype differ, a value is too far off, or either side has a NaN or an infinity.
    """
    require_shape(what, actual, expected.shape)
    require(actual.dtype == expected.dtype, f"{what}: dtype is {actual.dtype}, expected {expected.dtype}.")
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
        raise MismatchError(
            f"{what}: error {measured:.1e} is above {allowed:.0e}; worst at {index}: "
            f"{got[index].item():.9g}, expected {wanted[index].item():.9g}.",
            error=measured,
            allowed=allowed,
        )


def relative_error(actual: Tensor, expected: Tensor, scale: Tensor | None = None) -> float:
    """max|actual - expected| / max|scale|, in float64; 0 where there is nothing to compare."""
    if actual.numel() == 0:
        return 0.0
    got, wanted = actual.detach().double(), expected.detach().double()
    largest = float((wanted if scale is None else scale.detach().double()).abs().max())
    return float((got - wanted).abs().max()) / (largest or 1.0)


def no_worse(rough: float, tolerance: float) -> float:
    """The ratio rule: what is allowed where the textbook errs by `rough` in the same dtype."""
    return RATIO * rough + tolerance


def require_shape(what: str, actual: Tensor, shape: tuple[int, ...]) -> None:
    """The exact shape: nothing lost, nothing broadcast.

    Raises:
        MismatchError: it is another one.
    """
    require(actual.shape == shape, f"{what}: shape is {tuple(actual.shape)}, expected {tuple(shape)}.")


def require_bitwise(what: str, actual: Tensor, expected: Tensor) -> None:
    """The same values bit for bit; NaN where NaN is expected.

    Raises:
        MismatchError: shape, dtype or a value differ.
    """
    require_shape(what, actual, expected.shape)
    require(actual.dtype == expected.dtype, f"{what}: dtype is {actual.dtype}, expected {expected.dtype}.")
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    if not bool(same.all()):
        error = float((actual.detach().double() - expected.detach().double()).abs().nan_to_num(nan=torch.inf).max())
        raise MismatchError(f"{what}: differs by up to {error:.1e}, expected the same bits.", error=error, allowed=0.0)


def require_zero(what: str, actual: Tensor) -> None:
    """Exactly 0 everywhere.

    Raises:
        MismatchError: a value is not.
    """
    if actual.numel() and not bool((actual == 0).all()):
        largest = float(actual.detach().double().abs().nan_to_num(nan=torch.inf).max())
        raise MismatchError(f"{what}: is up to {largest:.1e}, expected exactly 0.", error=largest, allowed=0.0)


def require_finite(what: str, actual: Tensor) -> None:
    """No NaN and no infinity.

    Raises:
        MismatchError: there is one.
    """
    wrong = int((~actual.isfinite()).sum())
    require(wrong == 0, f"{what}: {wrong} of {actual.numel()} values are NaN or infinite.")
