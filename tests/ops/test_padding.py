"""Pads of a row that is long enough for a sort to mix it up, and wrong shapes of pads, which are refused by name."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mamba2.errors import ShapeError
from mamba2.ops.conv import causal_conv1d
from mamba2.ops.padding import align, restore
from mamba2.ops.scan import prepare_scan_input


def test_the_real_steps_of_a_long_row_keep_their_order_and_its_pads_are_zeros() -> None:
    u, mask = torch.arange(300.0).reshape(1, 300, 1), torch.arange(300)[None] % 3 != 0

    aligned, order = align(u, mask)

    real = [step for step in range(300) if step % 3]
    assert aligned.flatten().tolist() == [*real, *[0.0] * 100]
    assert order[0, :200].tolist() == real
    assert torch.equal(restore(aligned, order, mask), u * mask[..., None])


def test_lengths_are_counted_on_the_device_of_the_input() -> None:
    with FakeTensorMode():
        x, weight, past = (torch.zeros(shape, device="meta") for shape in ((2, 4, 1), (1, 2), (2, 1, 1)))
        _, after = causal_conv1d(x, weight, None, past, torch.zeros(2, dtype=torch.long, device="meta"))

    assert after.device.type == "meta"


def test_align_names_a_mask_of_another_length() -> None:
    with pytest.raises(ShapeError, match=r"^align: axis 'time' is 3 in mask \(2, 3\) but 4 in u \(2, 4, 1\)\."):
        align(torch.zeros(2, 4, 1), torch.ones(2, 3, dtype=torch.bool))


def test_align_refuses_a_mask_of_numbers() -> None:
    with pytest.raises(ShapeError, match=r"^align: mask must be Bool; got float32 \(2, 4\)\."):
        align(torch.zeros(2, 4, 1), torch.ones(2, 4))


def test_restore_names_an_order_of_another_batch() -> None:
    with pytest.raises(ShapeError, match=r"^restore: axis 'batch' is 1 in order \(1, 4\) but 2 in y \(2, 4, 1\)\."):
        restore(torch.zeros(2, 4, 1), torch.zeros(1, 4, dtype=torch.long), torch.ones(2, 4, dtype=torch.bool))


def test_the_convolution_names_lengths_of_another_batch() -> None:
    with pytest.raises(
        ShapeError, match=r"^causal_conv1d: axis 'batch' is 3 in lengths \(3,\) but 2 in x \(2, 4, 1\)\."
    ):
        causal_conv1d(torch.zeros(2, 4, 1), torch.zeros(1, 2), None, torch.zeros(2, 1, 1), torch.tensor([1, 2, 3]))


def test_the_preparation_names_a_mask_of_another_length() -> None:
    x, dt, BC, head = torch.zeros(2, 4, 1, 1), torch.zeros(2, 4, 1), torch.zeros(2, 4, 1, 1), torch.zeros(1)

    with pytest.raises(ShapeError, match=r"^prepare_scan_input: axis 'time' is 5 in mask \(2, 5\) but 4 in x "):
        prepare_scan_input(x, dt, head, BC, BC, head, torch.ones(2, 5, dtype=torch.bool), dt_range=(0.0, 1.0))
