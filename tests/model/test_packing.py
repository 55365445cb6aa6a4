"""Rows of many sequences: where they are cut."""

import pytest
import torch

from mamba2.errors import ConfigError
from mamba2.model.packing import unpack


def test_an_empty_sequence_is_a_row_of_pads() -> None:
    padded, mask = unpack(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([0, 2, 2, 3]))

    assert padded[..., 0].tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


@pytest.mark.parametrize("cuts", [[0], [0, 2], [1, 3], [0, 2, 1, 3], [0, 4]])
def test_lengths_that_do_not_cover_the_row_are_refused(cuts: list[int]) -> None:
    with pytest.raises(ConfigError) as caught:
        unpack(torch.zeros(1, 3, 1), torch.tensor(cuts))

    assert str(caught.value) == f"cu_seqlens: must rise from 0 to the row's 3 steps; got {cuts}."
