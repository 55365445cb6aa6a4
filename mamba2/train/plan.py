"""Which windows each optimizer step takes: a pure function of the windows, the seed and the epoch.

So the position in the data is one number, the step, and going on means leaving out the steps that were taken.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mamba2.config import TrainConfig
from mamba2.data.windows import Windows
from mamba2.model.backbone import BackboneState
from mamba2.model.forecaster import Forecaster
from mamba2.model.state import choose_rows, replace_rows, select_rows


class Turn(NamedTuple):
    """The windows of one optimizer step, side by side in lanes."""

    windows: NDArray[np.int64]
    lanes: NDArray[np.int64]
    """Ascending; the row of the carried state that each window goes on from."""
    follows: NDArray[np.bool_]
    """Whether the lane's window before ended where this one starts; if not, it starts from the initial state."""


def plan_epoch(windows: Windows, config: TrainConfig, epoch: int) -> list[Turn]:
    """ceil(windows / batch) turns, in which each window comes once, in an order that differs from epoch to epoch."""
    rng, size = np.random.default_rng((config.seed, epoch)), config.batch
    if not config.carry_state:
        order = rng.permutation(len(windows))
        turns = [order[first : first + size] for first in range(0, len(order), size)]
        return [Turn(each, np.arange(len(each)), np.zeros(len(each), bool)) for each in turns]
    follows = _follow(windows)
    chain = np.cumsum(~follows) - 1
    order = np.argsort(rng.permutation(len(windows))[chain], kind="stable")
    return _side_by_side(np.array_split(order, size), follows)


def state_before(model: Forecaster, carried: BackboneState, turn: Turn) -> BackboneState:
    """What each window goes on from: its lane's state where it follows the lane's last window, else the initial one."""
    initial = model.initial_state(len(turn.lanes))
    if not carried:
        return initial
    device = carried[0].ssm.device
    follows, lanes = torch.from_numpy(turn.follows).to(device), torch.from_numpy(turn.lanes).to(device)
    return choose_rows(follows, select_rows(carried, lanes), initial)


def state_after(carried: BackboneState, turn: Turn, state: BackboneState) -> BackboneState:
    """The lanes' states once the turn's windows ended in `state`; empty where none is carried."""
    return replace_rows(carried, torch.from_numpy(turn.lanes).to(carried[0].ssm.device), state) if carried else ()


def _follow(windows: Windows) -> NDArray[np.bool_]:
    """Whether a window starts where the one listed before it ends, in the same segment."""
    follows = np.zeros(len(windows), bool)
    end = windows.start[:-1] + windows.length
    follows[1:] = (windows.track[1:] == windows.track[:-1]) & (windows.start[1:] == end)
    for index, track in enumerate(windows.tracks):
        follows[windows.track == index] &= ~track.starts[windows.start[windows.track == index]]
    return follows


def _side_by_side(stretches: list[NDArray[np.int64]], follows: NDArray[np.bool_]) -> list[Turn]:
    """One lane a stretch; turn t takes the t-th window of each lane that has one. The first stretches are longest."""
    turns = []
    for t in range(len(stretches[0])):
        lanes = np.array([lane for lane, stretch in enumerate(stretches) if t < len(stretch)])
        chosen = np.array([stretches[lane][t] for lane in lanes])
        # Where a lane was cut out of the middle of a chain, its first window has no state to go on from.
        turns.append(Turn(chosen, lanes, follows[chosen] & (t > 0)))
    return turns
