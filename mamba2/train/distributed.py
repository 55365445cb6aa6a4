"""Several processes as torchrun starts them; one process is the same with nothing to send.

All processes hold all data and make the same plan, so what each takes and how much there is needs no word between them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mamba2.config import RunConfig, TrainConfig
from mamba2.data.windows import Windows, batches
from mamba2.errors import ConfigError
from mamba2.model.backbone import BackboneState
from mamba2.model.block import BlockState
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import Progress, checkpoint_name, save_checkpoint, tidy
from mamba2.train.evaluate import to_tensors, validation_loss
from mamba2.train.plan import Turn, state_after, state_before
from mamba2.train.step import compute_gradients, find_fault, forecaster


class Processes(NamedTuple):
    """Those that train one model together; the first of them writes."""

    rank: int = 0
    world: int = 1
    """How many there are."""

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0


ALONE = Processes()


@contextmanager
def joined() -> Iterator[Processes]:
    """Joins the processes that torchrun started, through nccl on GPUs and gloo on CPUs; without torchrun, just this.

    Raises:
        ConfigError: torchrun restarted the processes without a store of their own.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield ALONE
        return
    shares_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if shares_store and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        # In it are the addresses of the processes before, which these would wait for (torch 2.13).
        raise ConfigError(
            "torchrun: restarted processes must have a store of their own; got the one of those before. "
            "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun."
        )
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size())
        dist.barrier()  # none leaves while the first still writes
    finally:
        dist.destroy_process_group()


def own_device(name: str) -> str:
    """The device of this process: `cuda` is the GPU of its number on its machine.

    Raises:
        ConfigError: one GPU is named for several processes.
    """
    if "LOCAL_RANK" not in os.environ or not name.startswith("cuda"):
        return name
    if name != "cuda":
        raise ConfigError(
            f"device: several processes must not share one GPU; got {name!r}. Write cuda: each takes its own."
        )
    return f"cuda:{os.environ['LOCAL_RANK']}"


def spread(model: Forecaster, processes: Processes) -> nn.Module:
    """The model as all processes run it: a backward pass averages its gradients over them."""
    return model if processes.world == 1 else DistributedDataParallel(model)


def own_share(turn: Turn, processes: Processes) -> Turn:
    """Every world-th lane of a turn, so that a lane stays with its process; may be empty."""
    own = turn.lanes % processes.world == processes.rank
    return Turn(turn.windows[own], turn.lanes[own], turn.follows[own])


class Found(NamedTuple):
    """What all processes together found in a turn, the same in each but for the state."""

    loss: float
    norm: float
    """Of the gradients, before clipping."""
    state: BackboneState
    """Of the lanes of this process."""
    fault: str
    """What is not finite; empty if all is."""


def turn_gradients(
    model: nn.Module, windows: Windows, turn: Turn, carried: BackboneState, config: TrainConfig, processes: Processes
) -> Found:
    """Leaves the clipped gradients of a turn's mean loss in every process; each runs its share of the windows."""
    share, device = own_share(turn, processes), next(model.parameters()).device
    found = compute_gradients(
        model,
        to_tensors(windows.gather(share.windows), device),
        config.max_grad_norm,
        state=state_before(forecaster(model), carried, share),
        bars=float(windows.gather(turn.windows).valid.sum()) / processes.world,
        parts=config.accumulate,
        precision=config.precision,
    )
    fault = find_fault(model, found)
    if any_of(fault != "", processes):
        fault = fault or "another process found what is not finite"
    loss = _total(found.loss, processes).item() / processes.world
    return Found(loss, found.norm.item(), state_after(carried, share, found.state), fault)


def any_of(flag: bool, processes: Processes) -> bool:
    """Whether it holds in any process, the same answer in all of them."""
    return bool(_total(torch.tensor(float(flag)), processes) > 0)


def gathered(state: BackboneState, processes: Processes) -> BackboneState:
    """The state of all lanes, each from the process that runs it."""
    own = []
    for block in state:
        lane = torch.arange(len(block.ssm), device=block.ssm.device)
        is_own = lane % processes.world == processes.rank
        own.append(BlockState(*(torch.where(is_own.view(-1, *[1] * (each.ndim - 1)), each, 0.0) for each in block)))
    return tuple(BlockState(*(_total(each, processes) for each in block)) for block in own)


def validate(model: Forecaster, windows: Windows, size: int, processes: Processes) -> float | None:
    """`validation_loss`, each process over its part of the windows."""
    if processes.world == 1 or len(windows) == 0:
        return validation_loss(model, windows, size)
    part = windows.subset(np.arange(processes.rank, len(windows), processes.world))
    bars = float(sum(batch.valid.sum() for batch in batches(part, size, rng=None)))
    loss = validation_loss(model, part, size) or 0.0
    device = next(model.parameters()).device
    total = _total(torch.tensor([loss * bars, bars], dtype=torch.float64, device=device), processes)
    return (total[0] / total[1]).item()


def _total(value: Float[Tensor, "*_"], processes: Processes) -> Float[Tensor, "*_"]:
    if processes.world == 1:
        return value
    total = value.clone()
    dist.all_reduce(total)
    return total


def save(
    out: Path,
    model: Forecaster,
    optimizer: torch.optim.Optimizer,
    config: RunConfig,
    done: Progress,
    per_epoch: int,
    processes: Processes,
) -> Path:
    """The first process writes a checkpoint of all, lets `last` and `best` name it, and removes those not to keep.

    Raises:
        CheckpointError: it cannot be written.
    """
    folder, name = out / "checkpoints", checkpoint_name(done.step, per_epoch)
    done = done._replace(state=gathered(done.state, processes))
    if processes.is_first:
        save_checkpoint(folder / name, model, optimizer, config, done)
        tidy(folder, last=name, best=done.best_name, keep=config.train.keep)
    return folder / name
