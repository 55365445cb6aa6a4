"""Shapes as types: the axis glossary, and `shaped`, which checks annotations whenever a function runs.

jaxtyping states the shapes, beartype enforces them, and what a person reads is a `ShapeError` that names the axis. The
environment variable MAMBA2_SHAPES, read once at import, says how much is checked:

    full     every call, arguments and results
    cached   every call whose shapes, dtypes and other arguments were not seen before (the default)
    off      nothing: `shaped(f) is f`

Under torch.compile and torch.export the checks vanish in every mode.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped
from torch import Tensor, nn
from torch.compiler import is_compiling

from mamba2.errors import ConfigError, ShapeError
from mamba2.shape_faults import CONF, Contract

AXES = {
    "batch": "independent sequences",
    "time": "time steps (bars)",
    "d_model": "width of the residual stream",
    "d_inner": "width inside a block, head·channel",
    "head": "heads, each with one decay",
    "channel": "channels of a head (P, headdim)",
    "group": "groups of heads that share B and C",
    "state": "states of a channel (N, d_state)",
    "conv": "channels of the convolution: x, B and C side by side",
    "width": "time steps the convolution sees (d_conv)",
    "layer": "blocks of the residual stack",
    "feature": "bar features",
    "target": "forecast quantities",
    "quantile": "forecast levels",
    "vocabulary": "tokens there are",
    "bar": "bars of a series",
    "chunk": "time steps of one block of the parallel scan",
    "block": "chunks that a sequence is cut into",
    "member": "heads of one group",
}
"""Every axis name an annotation may use, and what it counts."""

Mode = Literal["full", "cached", "off"]
P = ParamSpec("P")
R = TypeVar("R")

_CACHED_CALLS = 4096
"""Seen call signatures kept for a function; beyond this the set starts anew."""


def _mode(name: str) -> Mode:
    match name:
        case "full" | "cached" | "off":
            return name
    raise ConfigError(f"MAMBA2_SHAPES: must be full, cached or off; got {name!r}.")


MODE = _mode(os.environ.get("MAMBA2_SHAPES", "cached"))


def shaped(function: Callable[P, R], mode: Mode = MODE) -> Callable[P, R]:
    """Checks the jaxtyping annotations of `function`, NamedTuple fields included, whenever it runs.

    The function must be pure: after a wrong result it is called once more, to say what is wrong.

    Raises:
        ShapeError: on the call, where an argument or the result does not fit.
    """
    if mode == "off":
        return function
    checked = jaxtyped(typechecker=beartype(conf=CONF))(function)
    contract = Contract(function)
    seen: set[Any] = set()

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if not contract.takes(args, kwargs):
            return function(*args, **kwargs)  # Python says why not, and names the function
        # beartype does not look into NamedTuples.
        if contract.has_records and (message := contract.argument_fault(args, kwargs)):
            raise ShapeError(message)
        try:
            result: R = checked(*args, **kwargs)
        except TypeCheckError:
            message = contract.argument_fault(args, kwargs)
            if message is None:
                with torch.no_grad():
                    message = contract.result_fault(args, kwargs, function(*args, **kwargs))
            if message is None:
                raise
            # The checkers' own messages hold tensor values, so the chain is cut.
            raise ShapeError(message) from None
        if contract.has_records and (message := contract.result_fault(args, kwargs, result)):
            raise ShapeError(message)
        return result

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_compiling():
            return function(*args, **kwargs)
        if mode == "full":
            return check(args, kwargs)
        try:
            key = _signature(args)
            if kwargs:
                key = (*key, tuple(kwargs), _signature(kwargs.values()))
            known = key in seen
        except TypeError:  # an argument that has no hash
            return check(args, kwargs)
        if known:
            return function(*args, **kwargs)
        result = check(args, kwargs)
        if len(seen) >= _CACHED_CALLS:
            seen.clear()
        seen.add(key)
        return result

    # Dynamo counts recompilations per code object; one shared by all wrappers would reach its limit.
    wrapper.__code__ = wrapper.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return wrapper


def unchecked(function: Callable[P, R]) -> Callable[P, R]:
    """A `shaped` function for a caller that has fixed every size itself: without its checks, but for mode full."""
    return function if MODE == "full" else inspect.unwrap(function)


def _signature(values: Iterable[Any]) -> tuple[Any, ...]:
    """What a call's shapes depend on: of tensors shape and dtype, of modules identity and sizes, else the value."""
    found: list[Any] = []  # two for each value
    for value in values:
        if isinstance(value, Tensor):
            found += (value.shape, value.dtype)
        elif isinstance(value, tuple):
            found += (type(value), _signature(value))
        elif isinstance(value, nn.Module):
            found += (id(value), tuple([None if each is None else each.shape for each in value._parameters.values()]))
        elif callable(value):
            found += (type(value), None)  # a method would keep its object, weights and all
        else:
            found += (type(value), value)
    return tuple(found)
