"""Several sequences in one row: each is run on its own, so nothing can leak from one into the next."""

from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor, nn

from mamba2.errors import ConfigError, ShapeError

State = TypeVar("State")


def cumulative_lengths(sequence_id: Int[Tensor, " time"]) -> Int[Tensor, " _"]:
    """Where each run of equal ids begins, and the end of the last.

    >>> cumulative_lengths(torch.tensor([7, 7, 7, 2, 9, 9])).tolist()
    [0, 3, 4, 6]
    """
    change = sequence_id.diff().nonzero().flatten() + 1
    ends = change.new_tensor([len(sequence_id)] if len(sequence_id) else [])
    return torch.cat((change.new_zeros(1), change, ends))


def unpack(
    row: Shaped[Tensor, "1 time ..."], cu_seqlens: Int[Tensor, " _"]
) -> tuple[Shaped[Tensor, "batch time ..."], Bool[Tensor, "batch time"]]:
    """One sequence a row, right-padded to the longest; and which steps are real.

    Raises:
        ShapeError: there is more than one row, or none.
        ConfigError: the lengths do not rise from 0 to the length of the row.
    """
    lengths = cu_seqlens.diff()
    time = row.shape[1]
    if len(row) != 1:
        raise ShapeError(f"packed sequences: axis 'batch' must be 1, one row; got {len(row)} rows. Concatenate them.")
    if len(cu_seqlens) < 2 or cu_seqlens[0] != 0 or cu_seqlens[-1] != time or bool((lengths < 0).any()):
        raise ConfigError(f"cu_seqlens: must rise from 0 to the row's {time} steps; got {cu_seqlens.tolist()}.")
    mask = torch.arange(int(lengths.max()), device=row.device) < lengths[:, None].to(row.device)
    steps = cu_seqlens[:-1, None].to(row.device) + torch.arange(mask.shape[1], device=row.device)
    padded = row[0, steps.where(mask, 0)] if time else row.new_zeros(*mask.shape, *row.shape[2:])
    return padded.masked_fill(~mask.reshape(*mask.shape, *[1] * (row.ndim - 2)), 0), mask


def run_packed(
    model: nn.Module, row: Shaped[Tensor, "1 time ..."], cu_seqlens: Int[Tensor, " _"], state: State
) -> tuple[Any, State]:
    """Runs a model, of any kind here, on sequences packed into one row and cut at `cu_seqlens`; some may be empty.

    The state has a row for each sequence, and so has the state that comes back. Sequences are padded to the longest:
    pack those of like length.

    Raises:
        ShapeError: there is more than one row, or none.
        ConfigError: the lengths do not rise from 0 to the length of the row.
    """
    padded, mask = unpack(row, cu_seqlens)
    y, state = model(padded, state, mask)
    if isinstance(y, Tensor):
        return y[mask][None], state
    return type(y)(*(each[mask][None] for each in y)), state
