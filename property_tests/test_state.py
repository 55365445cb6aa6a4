"""A state saved and loaded is the same, bit for bit."""

import tempfile
from pathlib import Path

import torch
from hypothesis import given

from mamba2.model.block import BlockState
from mamba2.model.state import choose_rows, load_state, save_state
from mamba2.verify.strategies import Sizes, Source, all_sizes, seeds


def random_state(sizes: Sizes, seed: int) -> BlockState:
    source = Source(seed)
    return BlockState(
        source.normal(sizes.batch, sizes.width - 1, sizes.head),
        source.normal(sizes.batch, sizes.head, sizes.channel, 2),
    )


@given(all_sizes(), seeds)
def test_a_state_saved_and_loaded_is_the_same_bit_for_bit(sizes: Sizes, seed: int) -> None:
    state = random_state(sizes, seed)
    with tempfile.TemporaryDirectory() as folder:
        save_state(Path(folder) / "state", (state, state))
        loaded = load_state(Path(folder) / "state")

    for same in loaded:
        assert torch.equal(same.conv, state.conv)
        assert torch.equal(same.ssm, state.ssm)


@given(all_sizes(), seeds)
def test_each_row_is_chosen_from_one_of_two_states(sizes: Sizes, seed: int) -> None:
    first, other = random_state(sizes, seed), random_state(sizes, seed + 1)
    from_first = Source(seed + 2).uniform(0, 1, sizes.batch) < 0.5
    chosen = choose_rows(from_first, first, other)

    for row, is_first in enumerate(from_first.tolist()):
        wanted = first if is_first else other
        assert torch.equal(chosen.conv[row], wanted.conv[row])
        assert torch.equal(chosen.ssm[row], wanted.ssm[row])
