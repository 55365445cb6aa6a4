"""What a run will take, found out before it begins: one step on fake tensors, counted and weighed."""

import math
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from mamba2.config import RunConfig
from mamba2.errors import ConfigError
from mamba2.train.dry_run import standing_for, with_gradients

_GB = 1e9


def _product_flops(_: Sequence[int], left: Sequence[int], right: Sequence[int], **_scalars: Any) -> int:
    return 2 * math.prod(left) * right[-1]


_IN_PLACE = {torch.ops.aten.addmm_: _product_flops, torch.ops.aten.baddbmm_: _product_flops}
"""Torch's counter leaves these out."""


class Preflight(NamedTuple):
    """What one process needs."""

    parameters: int
    flops: int
    """Of one optimizer step, forward and backward, in products of matrices."""
    memory: int
    """Bytes at the peak, beside what torch itself takes: weights, AdamW's moments, and what a step allocates."""


def preflight(config: RunConfig, world: int = 1) -> Preflight:
    """Takes one step on fake tensors, and counts what it multiplies and what its tensors hold.

    Peak memory is AdamW's two moments, 8 bytes a parameter, and the most that tensors hold at once while a part of the
    batch goes forward and backward. Of a part of more than 2048 bars it grows with them as from 1024 to 2048.

    Raises:
        ShapeError: a function of the model was given a tensor that does not fit it.
    """
    settings, time = config.train, config.data.window
    part = -(-settings.batch // (world * settings.accumulate))
    rows, length = standing_for(time)
    if part * time <= rows * length:
        found = _step(config, part, time)
    else:
        less, more = _step(config, rows // 2, length), _step(config, rows, length)
        times = (part * time - rows * length) / (rows * length // 2)
        found = _Step(*(round(high + times * (high - low)) for low, high in zip(less, more, strict=True)))
    flops = found.flops * settings.batch // (part * world)
    return Preflight(found.parameters, flops, 8 * found.parameters + found.peak)


class _Step(NamedTuple):
    parameters: int
    flops: int
    peak: int


def _step(config: RunConfig, batch: int, time: int) -> _Step:
    """One step on fake tensors, without its optimizer."""
    counter = FlopCounterMode(display=False, custom_mapping=_IN_PLACE)
    with FakeTensorMode(), _Allocations() as allocations, counter:
        model = with_gradients(config, batch, time)
    parameters = sum(each.numel() for each in model.parameters())
    return _Step(parameters, counter.get_total_flops(), allocations.peak)


class _Allocations(TorchDispatchMode):
    """Counts the bytes of all tensors that live at once."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor):
                self._count(each.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return

        def release(_: Any) -> None:
            del self.known[key]
            self.live -= size

        self.known[key] = weakref.ref(storage, release)
        self.live += size
        self.peak = max(self.peak, self.live)


def require_room(found: Preflight, device: torch.device) -> None:
    """
    Raises:
        ConfigError: the run needs more memory than the device has free.
    """
    free = free_memory(device)
    if free is not None and found.memory > free:
        raise ConfigError(
            f"memory: {device} must have about {found.memory / _GB:.1f} GB free; got {free / _GB:.1f} GB. "
            "Raise accumulate, or lower batch, window or the model's size."
        )


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be taken; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # counts what caches would give back, unlike sysconf
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None
