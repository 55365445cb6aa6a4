"""What the law book does not say of pads and packed sequences: outputs at pads, and two ways to say where to cut."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mamba2.model.block import Mamba2Block
from mamba2.model.packing import cumulative_lengths
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import BlockCase, Source, block_cases, seeds

cases = block_cases(Mamba2Block)
pads = st.sampled_from([0.0, 1.0, 1e30, float("inf"), float("nan")])


@given(cases, seeds, pads)
def test_pads_give_zeros_have_no_gradient_and_leave_that_of_the_rest(case: BlockCase, seed: int, pad: float) -> None:
    """Left, right and middle pads, rows of nothing but pads included."""
    mask = Source(seed).uniform(0, 1, case.sizes.batch, case.sizes.time) < 0.6
    padded = case.u.masked_fill(~mask[..., None], pad).requires_grad_()
    clean = case.u.masked_fill(~mask[..., None], 0.0).requires_grad_()

    def gradients(u: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, last = case.block(u, case.state, mask)
        assert (y[~mask] == 0).all()
        leaves = (u, *case.block.parameters())
        return torch.autograd.grad(y.sum() + last.ssm.sum() + last.conv.sum(), leaves)

    for got, wanted in zip(gradients(padded), gradients(clean), strict=True):
        require_close("gradient", got, wanted)
    assert (gradients(padded)[0][~mask] == 0).all()


@given(st.lists(st.integers(1, 5), max_size=6))
def test_sequence_ids_say_the_same_as_cumulative_lengths(lengths: list[int]) -> None:
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.long))

    assert cumulative_lengths(ids).tolist() == [0, *torch.tensor(lengths, dtype=torch.long).cumsum(0).tolist()]
