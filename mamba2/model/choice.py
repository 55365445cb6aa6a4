"""When a block runs in its fast form, and why not where it does not: the one place that decides."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.amp import is_autocast_available
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook

Sizes = tuple[tuple[int, ...], ...]
"""Of the input without its time, of the convolution's past and of the recurrence's state."""


def why_never_fused(*, device: str, dtype: torch.dtype, is_autocast: bool) -> str | None:
    """Why no call of this kind runs in the fast form, as far as it can be said before one; None where they do.

    >>> why_never_fused(device="cpu", dtype=torch.float32, is_autocast=False)
    >>> why_never_fused(device="cuda", dtype=torch.float32, is_autocast=False)
    'the device is cuda, not cpu'
    """
    if device != "cpu":
        return f"the device is {device}, not cpu"
    if is_autocast:
        return "autocast is on"
    if dtype not in (torch.float32, torch.float64):
        return f"the dtype is {dtype}, neither float32 nor float64"
    return None


def why_composed(
    u: Float[Tensor, "batch time _"],
    state: tuple[Float[Tensor, "..."], ...],
    mask: Bool[Tensor, "batch time"] | None,
    sizes: Sizes,
    block: nn.Module,
) -> str | None:
    """Why this call runs in the composed form; None where it runs in the fast one.

    `sizes` are those of u, but for its time, and of the state that the block wants.
    """
    if torch.compiler.is_compiling():
        return "torch compiles the composed form"
    # The second is what torch.autograd.Function itself asks.
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
        return "the fast form has no rule for forward-mode derivatives, nor for torch.func"
    if mask is not None:
        return "there are pads"
    # Hooks for all modules do not count: a count of operations has some, and is to count those that are run.
    if any(type(each) is not nn.Linear or _is_changed(each) for each in block.children()):
        return "a projection is no plain nn.Linear"
    tensors = [u, *state, *block.parameters()]
    if any(type(each) not in (Tensor, nn.Parameter, FakeTensor) for each in tensors):
        return "there are tensors of other types than torch.Tensor"
    if any((each.dtype, each.device) != (u.dtype, u.device) for each in tensors):
        return "dtypes or devices differ"
    if not u.numel():
        return "there is nothing to run"
    if _sizes(u, state) != sizes:
        return "sizes do not fit, which the composed form says in words"
    return why_never_fused(device=u.device.type, dtype=u.dtype, is_autocast=_is_autocast(u.device.type))


def why_apart(block: nn.Module, forward: Callable[..., Any]) -> str | None:
    """Why `block` must be called as a module, and not be one function with the norm before and the sum after it.

    `forward` is the one that such a function stands for.
    """
    if type(block).forward is not forward or _is_changed(block):
        return "the block has hooks, or a forward of its own"
    if _has_any_global_hook():
        return "there are hooks for all modules"
    return None


def _is_changed(module: nn.Module) -> bool:
    """Whether a call of the module does more than its class says."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or "forward" in vars(module)


def why_composed_step(
    u: Float[Tensor, "batch 1 _"],
    state: tuple[Float[Tensor, "..."], ...],
    sizes: Sizes,
    block: nn.Module,
) -> str | None:
    """Why this step runs in the composed form; the fast one is made of torch's own operations, so it asks for less.

    `sizes` are those that `why_composed` takes, and the parameters' of the block as they were made.
    """
    if torch.compiler.is_compiling():
        return "torch compiles the composed form"
    if torch._C._are_functorch_transforms_active():
        return "the fast form edits in place, which torch.func does not allow everywhere"
    conv, ssm = state
    if not u.dtype == conv.dtype == ssm.dtype == block.A_log.dtype:
        return "dtypes differ"
    if (*_sizes(u, state), *own_sizes(block)) != sizes:
        return "sizes do not fit, which the composed form says in words"
    return why_never_fused(device="cpu", dtype=u.dtype, is_autocast=_is_autocast(u.device.type))


def own_sizes(block: nn.Module) -> Sizes:
    """Of the parameters that are the block's own and in no module of it."""
    return tuple([() if each is None else each.shape for each in block._parameters.values()])


def _is_autocast(device: str) -> bool:
    """Whether autocast is on there; some devices have none, meta for one."""
    return is_autocast_available(device) and torch.is_autocast_enabled(device)


def _sizes(u: Float[Tensor, "batch time _"], state: tuple[Float[Tensor, "..."], ...]) -> Sizes:
    return (u.shape[0], u.shape[2]), *[each.shape for each in state]
