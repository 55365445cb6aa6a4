"""What transformers keeps between calls, in every release since 4.47: made, copied and read in one way.

In 4.x it is `Mamba2Cache` and a class for each hybrid, whose model tells it where it is by `cache_position`, by
`seqlen_offset` or by setting `has_previous_state`; in 5.x one `DynamicCache`, with an entry in `layers` for each layer.
"""

import copy
import inspect
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mamba2.verify.reference import State


def new_cache(modeling: ModuleType, settings: Any, batch: int, dtype: torch.dtype) -> Any:
    """An empty cache, as the model in this module makes one for itself."""
    for name, made in vars(modeling).items():
        if name.endswith("Cache") and getattr(made, "__module__", "") == modeling.__name__:
            each_layer = {"devices": ["cpu"] * settings.num_hidden_layers}  # Falcon-H1 wants them one by one
            return made(settings, batch, dtype=dtype, **(each_layer if _takes(made, "devices") else {}))
    return modeling.DynamicCache(config=settings)


def copy_cache(cache: Any) -> Any:
    """A cache of its own, since transformers writes into the one it is given; gradients go through the copy."""
    if isinstance(cache, Tensor):
        return cache.clone()
    if isinstance(cache, list):
        return [copy_cache(each) for each in cache]
    if isinstance(cache, dict):
        return {name: copy_cache(each) for name, each in cache.items()}
    if not type(cache).__name__.endswith(("Cache", "Layer")):
        return cache
    made = copy.copy(cache)
    vars(made).update({name: copy_cache(each) for name, each in vars(cache).items()})
    return made


def cache_arguments(call: Any, cache: Any, seen: int, time: int) -> dict[str, Any]:
    """A cache that has seen so many steps, by the names that this call has for it."""
    # Until 5.22 it was `cache_params` or, in hybrids, `past_key_values`; in some releases a decorator hides the first.
    name = next((each for each in ("cache", "past_key_values") if _takes(call, each)), "cache_params")
    if _takes(call, "cache_position"):
        return {name: cache, "cache_position": torch.arange(seen, seen + time)}
    return {name: cache}


def advance(cache: Any, time: int) -> None:
    """What a model does after its last layer, for a mixer that is run alone."""
    if hasattr(cache, "seqlen_offset"):
        cache.seqlen_offset += time
    if isinstance(getattr(cache, "has_previous_state", None), bool):
        cache.has_previous_state = True


def read_cache(cache: Any, layer: int) -> State:
    """A layer's state; the oldest input that the cache holds is beyond what the convolution sees next."""
    if hasattr(cache, "layers"):
        own = cache.layers[layer]
        conv, ssm = own.conv_states, own.recurrent_states
        # A layer has one tensor of each kind or, since 5.13, any number of them.
        conv, ssm = (each[0] if isinstance(each, dict) else each for each in (conv, ssm))
    else:
        conv, ssm = cache.conv_states[layer], cache.ssm_states[layer]
    return {"conv": conv[..., 1:].mT, "ssm": ssm}


def _takes(call: Any, name: str) -> bool:
    return name in inspect.signature(call).parameters
