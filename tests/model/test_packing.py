"""Rows of many sequences: where they are cut."""

import pytest
import torch

from mamba2.config import ModelConfig
from mamba2.errors import ConfigError, ShapeError
from mamba2.model.language import LanguageModel
from mamba2.model.packing import run_packed, unpack
from mamba2.verify.checks import require_close


def test_an_empty_sequence_is_a_row_of_pads() -> None:
    padded, mask = unpack(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([0, 2, 2, 3]))

    assert padded[..., 0].tolist() == [[1.0, 2.0], [0.0, 0.0], [3.0, 0.0]]
    assert mask.tolist() == [[True, True], [False, False], [True, False]]


def test_tokens_are_packed_as_features_are() -> None:
    torch.manual_seed(0)
    config = ModelConfig(d_model=8, layers=2, headdim=4, d_state=3, chunk=2)
    model = LanguageModel(config, vocabulary=5, tied=True)
    tokens = torch.tensor([[1, 2, 3, 4, 0]])
    logits, _ = run_packed(model, tokens, torch.tensor([0, 3, 5]), model.initial_state(2))
    alone = [model(part, model.initial_state(1))[0] for part in (tokens[:, :3], tokens[:, 3:])]

    require_close("logits", logits, torch.cat(alone, dim=1))


@pytest.mark.parametrize("cuts", [[0], [0, 2], [1, 3], [0, 2, 1, 3], [0, 4]])
def test_lengths_that_do_not_cover_the_row_are_refused(cuts: list[int]) -> None:
    with pytest.raises(ConfigError) as caught:
        unpack(torch.zeros(1, 3, 1), torch.tensor(cuts))

    assert str(caught.value) == f"cu_seqlens: must rise from 0 to the row's 3 steps; got {cuts}."


def test_more_than_one_row_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^packed sequences: axis 'batch' must be 1, one row; got 2 rows\."):
        unpack(torch.zeros(2, 10, 3), torch.tensor([0, 4, 10]))
