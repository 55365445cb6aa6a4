"""Every form of the scan is the recurrence, values and gradients, on every size."""

from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from torch import Tensor

from mamba2.ops.scan import ScanInput, prepare_scan_input, scan_chunked, scan_sequential
from mamba2.verify.checks import TOLERANCES, require_close
from mamba2.verify.strategies import ScanCase, Source, dtypes, hard_scan_cases, scan_cases, seeds

NAMES = ("y", "final state", "gradient of x", "of log_decay", "of B", "of C", "of the state")


def results(scan: Callable[..., tuple[Tensor, Tensor]], case: ScanCase) -> list[Tensor]:
    """Output, final state, and the gradients of a weighted sum of both by all five inputs."""
    leaves = [each.detach().clone().requires_grad_() for each in case.tensors]
    y, state = scan(*leaves)
    weights = Source(0)
    total = sum((each * weights.uniform(0.5, 1.5, *each.shape).to(each.dtype)).sum() for each in (y, state))
    return [y, state, *torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)]


def scales(case: ScanCase) -> list[Tensor]:
    """The results on absolute values.

    The chunked form adds terms to the gradient of log_decay and takes them away again, those of x with its own y, so
    what it can be judged against is not smaller than they are.
    """
    case = case.to(torch.float64).absolute()
    all_results = results(scan_sequential, case)
    of_x, of_log_decay = all_results[2:4]
    all_results[3] = torch.maximum(of_log_decay, (of_x * case.inputs.x).sum(-1))
    return all_results


def require_same_results(actual: list[Tensor], expected: list[Tensor], scale: list[Tensor]) -> None:
    """Judged by the dtype of `actual`; the other two may be wider."""
    outputs, gradients = TOLERANCES[actual[0].dtype]
    for name, got, wanted, size in zip(NAMES, actual, expected, scale, strict=True):
        tolerance = gradients if "of" in name.split() else outputs
        # an error below the smallest normal number is none: numbers there have few digits
        least = torch.finfo(got.dtype).tiny / tolerance
        require_close(name, got.to(wanted.dtype), wanted, scale=size.clamp_min(least), tolerance=tolerance)


def chunked(case: ScanCase) -> Callable[..., tuple[Tensor, Tensor]]:
    return partial(scan_chunked, chunk=case.sizes.chunk)


FORMS = pytest.mark.parametrize("is_compiling", [False, True], ids=["eager", "as compiled"])
"""A compiled graph has no loop over the chunks; its form runs here without the compiler."""


def require_recurrence(case: ScanCase, is_compiling: bool) -> None:
    """The chunked scan against the sequential one in float64 on the same, already rounded, numbers."""
    exact = case.to(torch.float64)
    with patch.object(torch.compiler, "is_compiling", lambda: is_compiling):
        actual = results(chunked(case), case)
    require_same_results(actual, results(scan_sequential, exact), scales(case))


@FORMS
@given(scan_cases(), dtypes)
def test_chunks_give_the_recurrence_and_its_gradients(is_compiling, case, dtype):
    require_recurrence(case.to(dtype), is_compiling)


@FORMS
@given(hard_scan_cases(), dtypes)
def test_one_huge_time_step_among_small_ones_costs_no_digits(is_compiling, case, dtype):
    require_recurrence(case.to(dtype), is_compiling)


@pytest.mark.parametrize("name", ["sequential", "chunked"])
@given(hard_scan_cases(), dtypes)
def test_huge_time_steps_and_decays_stay_finite(name, case, dtype):
    scan = {"sequential": scan_sequential, "chunked": chunked(case)}[name]

    assert all(each.isfinite().all() for each in results(scan, case.to(dtype)))


@given(scan_cases())
def test_stopping_anywhere_and_going_on_changes_nothing(case):
    def in_two_parts(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        *inputs, state = tensors
        first, state = chunked(case)(*(each[:, : case.sizes.cut] for each in inputs), state)
        second, state = chunked(case)(*(each[:, case.sizes.cut :] for each in inputs), state)
        return torch.cat((first, second), dim=1), state

    require_same_results(results(in_two_parts, case), results(chunked(case), case), scales(case))


@pytest.mark.parametrize("name", ["sequential", "chunked"])
@given(scan_cases())
def test_a_group_is_its_B_and_C_repeated_for_each_of_its_heads(name, case):
    scan = {"sequential": scan_sequential, "chunked": chunked(case)}[name]
    per_group = case.sizes.head // case.sizes.group

    def ungrouped(x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        alone = torch.arange(case.sizes.head) // per_group
        return scan(x, log_decay, B[:, :, alone], C[:, :, alone], state)

    require_same_results(results(ungrouped, case), results(scan, case), scales(case))


@given(scan_cases(), seeds)
def test_the_prepared_decay_is_never_positive_and_its_time_step_is_within_limits(case, seed):
    sizes, source = case.sizes, Source(seed)
    dt, A_log = source.normal(sizes.batch, sizes.time, sizes.head) * 10, source.normal(sizes.head)
    ones = torch.ones_like(case.inputs.x)

    prepared = prepare_scan_input(
        ones, dt, A_log, case.inputs.B, case.inputs.C, source.normal(sizes.head) * 3, dt_range=(0.01, 0.1)
    )

    assert isinstance(prepared, ScanInput)
    assert ((prepared.x >= 0.01) & (prepared.x <= 0.1)).all()
    require_close("log_decay", prepared.log_decay, -prepared.x[..., 0] * A_log.exp())
