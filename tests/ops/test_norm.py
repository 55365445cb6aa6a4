"""The norms on numbers done by hand."""

import re

import pytest
import torch

from mamba2.errors import ConfigError, ShapeError
from mamba2.ops.norm import gated_rms_norm, rms_norm

Y = torch.tensor([[[1.0, 7.0, 1.0, 7.0]]], dtype=torch.float64)
GATE = torch.tensor([[[700.0, 100.0, 100.0, 100.0]]], dtype=torch.float64)  # silu leaves these as they are
WEIGHT = torch.tensor([1.0, 1.0, 1.0, 10.0], dtype=torch.float64)


def test_a_norm_divides_by_the_root_mean_square():
    y = rms_norm(Y[..., :2], torch.tensor([10.0, 100.0], dtype=torch.float64), eps=0.0)

    assert y.flatten().tolist() == pytest.approx([2.0, 140.0])


def test_a_norm_of_bfloat16_is_rounded_once():
    y = rms_norm(torch.tensor([[[1.0, 3.0, 5.0]]], dtype=torch.bfloat16), torch.ones(3), eps=0.0)

    assert y.flatten().tolist() == [0.29296875, 0.87890625, 1.4609375]  # the last is 1.46875 where each step rounds


@pytest.mark.parametrize("before_gate", [False, True])
def test_a_norm_keeps_the_dtype_of_its_input(before_gate):
    y, weight = Y.bfloat16(), WEIGHT.float()

    assert rms_norm(y, weight, eps=0.0).dtype == torch.bfloat16
    assert gated_rms_norm(y, y, weight, eps=0.0, before_gate=before_gate).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("before_gate", "expected"), [(False, [1.0, 1.0, 0.2, 14.0]), (True, [140.0, 140.0, 20.0, 1400.0])]
)
def test_each_group_has_its_own_mean_square(before_gate, expected):
    y = gated_rms_norm(Y, GATE, WEIGHT, n_groups=2, eps=0.0, before_gate=before_gate)

    assert y.flatten().tolist() == pytest.approx(expected)


def test_eps_is_added_to_the_mean_square():
    one = torch.ones(1, 1, 1, dtype=torch.float64)

    y = gated_rms_norm(one, 100 * one, one.flatten(), eps=1e4)

    assert y.item() == pytest.approx(0.5**0.5)


@pytest.mark.parametrize("n_groups", [3, 0])
def test_a_width_that_the_groups_do_not_divide_is_refused(n_groups):
    message = f"gated_rms_norm: d_inner must be a multiple of n_groups; got 4 and {n_groups}."

    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        gated_rms_norm(Y, GATE, WEIGHT, n_groups=n_groups, eps=0.0)


def test_a_weight_of_another_width_is_refused_by_name():
    message = "rms_norm: axis 'd_model' is 3 in weight (3,) but 4 in x (1, 1, 4)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        rms_norm(Y, WEIGHT[:3], eps=0.0)


def test_a_gate_of_another_batch_is_refused_by_name():
    message = "gated_rms_norm: axis 'batch' is 2 in gate (2, 1, 4) but 1 in y (1, 1, 4)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        gated_rms_norm(Y, GATE.expand(2, -1, -1), WEIGHT, eps=0.0)
