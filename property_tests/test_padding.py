"""Pads anywhere, of any content, are as if they were not there; packed sequences do not know of each other."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from mamba2.config import ModelConfig
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.forecaster import Forecaster
from mamba2.model.packing import cumulative_lengths, run_packed
from mamba2.model.state import select_rows
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import BlockCase, Source, block_cases, randomised, seeds

cases = block_cases(Mamba2Block)
pads = st.sampled_from([0.0, 1.0, 1e30, float("inf"), float("nan")])


def random_mask(case: BlockCase, seed: int) -> torch.Tensor:
    """Left, right and middle pads, rows of nothing but pads included."""
    return Source(seed).uniform(0, 1, case.sizes.batch, case.sizes.time) < 0.6


def row_of(state: BlockState, row: int) -> BlockState:
    return BlockState(state.conv[row : row + 1], state.ssm[row : row + 1])


@given(cases, seeds, pads)
def test_a_padded_row_gives_what_the_row_without_pads_gives(case: BlockCase, seed: int, pad: float) -> None:
    mask = random_mask(case, seed)
    y, last = case.block(case.u.masked_fill(~mask[..., None], pad), case.state, mask)

    for row in range(case.sizes.batch):
        real = case.u[row : row + 1, mask[row]]
        y_alone, last_alone = case.block(real, row_of(case.state, row))
        require_close("y at the real steps", y[row : row + 1, mask[row]], y_alone)
        require_close("conv state", last.conv[row : row + 1], last_alone.conv)
        require_close("ssm state", last.ssm[row : row + 1], last_alone.ssm)
    assert (y[~mask] == 0).all()


@given(cases, seeds, pads)
def test_pads_have_no_gradient_and_leave_that_of_the_rest(case: BlockCase, seed: int, pad: float) -> None:
    mask = random_mask(case, seed)
    padded = case.u.masked_fill(~mask[..., None], pad).requires_grad_()
    clean = case.u.masked_fill(~mask[..., None], 0.0).requires_grad_()

    def gradients(u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, last = case.block(u, case.state, mask)
        leaves = (u, *case.block.parameters())
        return torch.autograd.grad(y.sum() + last.ssm.sum() + last.conv.sum(), leaves)

    for got, wanted in zip(gradients(padded), gradients(clean), strict=True):
        require_close("gradient", got, wanted)
    assert (gradients(padded)[0][~mask] == 0).all()


@given(block_cases(Mamba2Block, least_time=1), st.data())
def test_packed_sequences_give_what_each_gives_alone(case: BlockCase, data: st.DataObject) -> None:
    time = case.sizes.time
    cuts = sorted(data.draw(st.lists(st.integers(0, time), max_size=4)))
    cu_seqlens = torch.tensor([0, *cuts, time])
    row = Source(data.draw(seeds)).normal(1, time, case.block.config.d_model).requires_grad_()
    zeros = case.block.initial_state(len(cuts) + 1)
    state = BlockState(*(Source(7).normal(*each.shape) for each in zeros))
    y, last = run_packed(case.block, row, cu_seqlens, state)

    for index, (start, end) in enumerate(pairwise(cu_seqlens)):
        y_alone, last_alone = case.block(row[:, start:end], row_of(state, index))
        require_close("y", y[:, start:end], y_alone)
        require_close("conv state", last.conv[index : index + 1], last_alone.conv)
        require_close("ssm state", last.ssm[index : index + 1], last_alone.ssm)
        total = y[:, start:end].sum() + last.ssm[index].sum() + last.conv[index].sum()
        (gradient,) = torch.autograd.grad(total, row, retain_graph=True)
        outside = torch.ones(time, dtype=torch.bool)
        outside[start:end] = False
        assert (gradient[:, outside] == 0).all()


@given(st.lists(st.integers(1, 5), max_size=6))
def test_sequence_ids_say_the_same_as_cumulative_lengths(lengths: list[int]) -> None:
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.long))

    assert cumulative_lengths(ids).tolist() == [0, *torch.tensor(lengths, dtype=torch.long).cumsum(0).tolist()]


@given(seeds, pads)
def test_a_padded_forecast_is_the_forecast_without_pads(seed: int, pad: float) -> None:
    config = ModelConfig(d_model=6, layers=2, d_state=3, headdim=3, n_groups=2, chunk=4, bias=True)
    model = randomised(Forecaster(config, features=4, targets=2), seed)
    features = Source(seed + 1).normal(2, 9, 4)
    mask = Source(seed + 2).uniform(0, 1, 2, 9) < 0.6
    padded, after = model(features.masked_fill(~mask[..., None], pad), model.initial_state(2), mask)

    for row in range(2):
        alone, after_alone = model(features[row : row + 1, mask[row]], model.initial_state(1))
        require_close("quantiles", padded.quantiles[row : row + 1, mask[row]], alone.quantiles)
        for block, block_alone in zip(select_rows(after, torch.tensor([row])), after_alone, strict=True):
            require_close("ssm state", block.ssm, block_alone.ssm)
