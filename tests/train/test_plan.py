"""Which windows each step takes: every window once, and with carried state in the order of time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mamba2.config import RunConfig, TrainConfig
from mamba2.data.dataset import Dataset
from mamba2.data.windows import Windows
from mamba2.model.forecaster import Forecaster
from mamba2.train.distributed import Processes, own_share
from mamba2.train.evaluate import to_tensors
from mamba2.train.plan import plan_epoch, state_after, state_before


@pytest.fixture
def chains(dataset: Dataset) -> Windows:
    """Ten windows in segments of four, four and two."""
    track = dataset.train.tracks[0]
    starts = np.isin(np.arange(len(track.time)), [0, 32, 64])
    return replace(dataset.train, tracks=(track._replace(starts=starts),))


@pytest.mark.parametrize("carry_state", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 4, 10, 32])
def test_every_window_comes_once_in_as_few_turns_as_can_be(carry_state: bool, batch: int, chains: Windows) -> None:
    turns = plan_epoch(chains, TrainConfig(batch=batch, carry_state=carry_state), epoch=1)

    assert sorted(np.concatenate([turn.windows for turn in turns]).tolist()) == list(range(10))
    assert len(turns) == -(-10 // batch)


def test_epochs_and_seeds_differ_and_come_again(chains: Windows) -> None:
    plans = [
        [turn.windows.tolist() for turn in plan_epoch(chains, TrainConfig(seed=seed), epoch)]
        for seed, epoch in ((0, 1), (0, 1), (0, 2), (1, 1))
    ]

    assert plans[0] == plans[1]
    assert plans[0] not in plans[2:]


def test_a_window_follows_the_one_its_lane_ended_with(chains: Windows) -> None:
    config, ends, followed = TrainConfig(batch=3, carry_state=True), {}, 0
    for turn in plan_epoch(chains, config, epoch=1):
        for window, lane, follows in zip(*(column.tolist() for column in turn), strict=True):
            start = int(chains.start[window])
            # windows at 0, 32 and 64 begin segments
            assert follows == (ends.get(lane) == start and start not in (0, 32, 64))
            followed += follows
            ends[lane] = start + chains.length

    assert followed >= 3


@pytest.mark.parametrize("world", [2, 3, 5])
def test_processes_share_a_turn_without_overlap_or_loss(world: int, chains: Windows) -> None:
    for turn in plan_epoch(chains, TrainConfig(batch=4, carry_state=True), epoch=1):
        shares = [own_share(turn, Processes(rank, world)) for rank in range(world)]

        assert sorted(np.concatenate([share.windows for share in shares]).tolist()) == sorted(turn.windows.tolist())
        assert max(len(share.windows) for share in shares) - min(len(share.windows) for share in shares) <= 1


def test_carried_windows_give_what_their_whole_segment_gives(
    model: Forecaster, config: RunConfig, chains: Windows
) -> None:
    segment = to_tensors(replace(chains, length=32).gather(np.array([0])), torch.device("cpu"))
    with torch.no_grad():
        whole, _ = model(segment.features, model.initial_state(1))
        carried, means = model.initial_state(1), {}
        for turn in plan_epoch(chains, replace(config.train, batch=1, carry_state=True), epoch=1):
            batch = to_tensors(chains.gather(turn.windows), torch.device("cpu"))
            forecast, state = model(batch.features, state_before(model, carried, turn))
            carried = state_after(carried, turn, state)
            means[int(turn.windows[0])] = forecast.mean
    pieces = torch.cat([means[window] for window in range(4)], dim=1)

    assert torch.allclose(pieces, whole.mean, rtol=0, atol=1e-6)
