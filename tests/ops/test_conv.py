"""The causal convolution on numbers done by hand."""

import re

import pytest
import torch

from mamba2.errors import ShapeError
from mamba2.ops.conv import causal_conv1d, causal_conv1d_step

WEIGHT = torch.tensor([[100.0, 10.0, 1.0], [0.0, 0.0, 2.0]])
BIAS = torch.tensor([0.5, 0.0])
PAST = torch.tensor([[[1.0, 5.0], [2.0, 6.0]]])


def test_the_last_weight_meets_the_newest_input():
    y, past = causal_conv1d(torch.tensor([[[3.0, 7.0], [4.0, 8.0]]]), WEIGHT, BIAS, PAST)

    assert (y.tolist(), past.tolist()) == ([[[123.5, 14.0], [234.5, 16.0]]], [[[3.0, 7.0], [4.0, 8.0]]])


def test_a_step_is_one_such_sum():
    y, past = causal_conv1d_step(torch.tensor([[[3.0, 7.0]]]), WEIGHT, BIAS, PAST)

    assert (y.tolist(), past.tolist()) == ([[[123.5, 14.0]]], [[[2.0, 6.0], [3.0, 7.0]]])


def test_a_sequence_shorter_than_the_window_keeps_some_of_the_past():
    _, past = causal_conv1d(torch.tensor([[[3.0, 7.0]]]), WEIGHT, BIAS, PAST)

    assert past.tolist() == [[[2.0, 6.0], [3.0, 7.0]]]


def test_zero_time_steps_keep_the_past():
    y, past = causal_conv1d(torch.zeros(1, 0, 2), WEIGHT, BIAS, PAST)

    assert (y.tolist(), past.tolist()) == ([[]], PAST.tolist())


@pytest.mark.parametrize("conv", [causal_conv1d, causal_conv1d_step])
def test_a_window_of_one_has_no_past(conv):
    y, past = conv(torch.tensor([[[3.0]]]), torch.tensor([[5.0]]), None, torch.zeros(1, 0, 1))

    assert (y.tolist(), past.tolist()) == ([[[15.0]]], [[]])


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("conv", [causal_conv1d, causal_conv1d_step])
def test_the_past_that_follows_has_memory_and_strides_of_its_own(conv, batch):
    _, past = conv(torch.zeros(batch, 1, 2), WEIGHT, BIAS, PAST.expand(batch, -1, -1))

    assert past.untyped_storage().nbytes() == past.nbytes
    assert past.stride() == (4, 2, 1)


@pytest.mark.parametrize("conv", [causal_conv1d, causal_conv1d_step])
def test_a_past_of_another_length_is_refused_by_name(conv):
    message = f"{conv.__name__}: axis 'width-1' is 3 in past (1, 3, 2) but must be 2 (width-1, from weight)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        conv(torch.zeros(1, 1, 2), WEIGHT, BIAS, torch.zeros(1, 3, 2))
