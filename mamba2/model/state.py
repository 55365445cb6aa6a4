"""States as values: choose, repeat, reset and roll back rows, save and load; nothing is edited in place.

A state is a `BlockState`, or the tuple of them that a `Backbone` and what is built on it carry, first block first.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from jaxtyping import Bool, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mamba2.errors import CheckpointError
from mamba2.model.block import BlockState

State = TypeVar("State", BlockState, tuple[BlockState, ...])

FORMAT = "mamba2-state-1"


def select_rows(state: State, rows: Int[Tensor, " _"]) -> State:
    """The chosen rows in the given order: a part, another order, or repeats (to branch one past into many futures)."""
    return _map(lambda each: each.index_select(0, rows), state)


def choose_rows(first: Bool[Tensor, " batch"], state: State, other: State) -> State:
    """Row by row `state` where `first` holds, else `other`: the initial state to reset, an earlier one to roll back."""
    return _map(lambda a, b: torch.where(first.view(-1, *[1] * (a.ndim - 1)), a, b), state, other)


def replace_rows(state: State, rows: Int[Tensor, " _"], other: State) -> State:
    """The state with `other` in the named rows; its dtypes stay."""
    return _map(lambda whole, part: whole.index_copy(0, rows, part.to(whole.dtype)), state, other)


def detach(state: State) -> State:
    """The same values without their history, as truncated backpropagation carries them on."""
    return _map(Tensor.detach, state)


def save_state(path: Path, state: tuple[BlockState, ...]) -> None:
    """Writes a state as safetensors: `0.conv`, `0.ssm`, `1.conv`, …

    Raises:
        CheckpointError: the file cannot be written.
        TypeError: the state is one block's.
    """
    if isinstance(state, BlockState):
        raise TypeError("save_state: state must be a tuple of BlockState; got one. Put it into a tuple: (state,).")
    tensors = {
        f"{index}.{name}": each.detach().cpu().clone(memory_format=torch.contiguous_format)
        for index, block in enumerate(state)
        for name, each in zip(BlockState._fields, block, strict=True)
    }
    try:
        save_file(tensors, path, metadata={"format": FORMAT, "blocks": str(len(state))})
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: the state cannot be written: {error}") from error


def load_state(path: Path, device: str | torch.device = "cpu") -> tuple[BlockState, ...]:
    """Reads what `save_state` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or no state of this format.
    """
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{path}: the format must be {FORMAT}; got {metadata.get('format')}.")
            return tuple(
                BlockState(*(file.get_tensor(f"{index}.{name}") for name in BlockState._fields))
                for index in range(int(metadata["blocks"]))
            )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: not a saved state: {error}") from error


def _map(function: Callable[..., Tensor], state: State, *others: State) -> State:
    if isinstance(state, BlockState):
        return BlockState(*map(function, state, *others))
    return tuple(_map(function, *blocks) for blocks in zip(state, *others, strict=True))
