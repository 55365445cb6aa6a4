"""Every tensor of the maths and of the model has its axes named, and every public function checks them."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest
import torch
from jaxtyping import AbstractArray, Float
from torch import Tensor, nn

import mamba2.model
import mamba2.ops
from mamba2 import shapes
from mamba2.shapes import AXES, shaped

MODULES = [
    importlib.import_module(each.name)
    for room in (mamba2.ops, mamba2.model)
    for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
]


def faults(module: ModuleType) -> list[str]:
    """What the module's own functions, methods and records lack."""
    found = []
    for name, member in vars(module).items():
        if getattr(member, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(member):
            found += _faults(name, member, must_check=not name.startswith("_"))
        elif inspect.isclass(member):
            found += [f"{name}: {fault}" for fault in _hint_faults(get_type_hints(member))]
            for method, function in vars(member).items():
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    is_run = issubclass(member, nn.Module) and method in ("forward", "step")
                    found += _faults(f"{name}.{method}", function, must_check=is_run)
    return found


def _faults(where: str, function: Callable[..., Any], *, must_check: bool) -> Iterator[str]:
    own = inspect.unwrap(function)
    checks = function is not own and function.__globals__ is vars(shapes)
    hints = get_type_hints(own)
    if must_check and not checks:
        yield f"{where}: is not shaped"
    missing = [name for name in inspect.signature(own).parameters if name not in hints and name != "self"]
    yield from (f"{where}: {name} has no annotation" for name in missing)
    free = () if checks else ("_", "...")  # what a private helper works on may have any number of axes
    yield from (f"{where}: {fault}" for fault in _hint_faults(hints, free))


def _hint_faults(hints: dict[str, Any], free: tuple[str, ...] = ()) -> Iterator[str]:
    for name, hint in hints.items():
        for part in _parts(hint):
            if part in (Tensor, nn.Parameter):
                yield f"{name} has no axes"
            elif isinstance(part, type) and issubclass(part, AbstractArray):
                for axis in part.dim_str.split():
                    known = axis in AXES or axis in free or axis.isdigit() or axis.removesuffix("-1") in AXES
                    if not known:
                        yield f"{name} has an unknown axis {axis!r}"


def _parts(hint: Any) -> Iterator[Any]:
    """A hint and what it is made of; what a callable takes and gives is its own business."""
    yield hint
    if get_origin(hint) is not Callable:
        for part in get_args(hint):
            yield from _parts(part)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_tensor_has_its_axes_and_every_public_function_checks_them(module):
    assert faults(module) == []


def test_the_walk_meets_all_ops_and_models():
    assert {module.__name__ for module in MODULES} >= {
        "mamba2.ops.conv",
        "mamba2.ops.norm",
        "mamba2.ops.scan",
        "mamba2.model.backbone",
        "mamba2.model.block",
        "mamba2.model.forecaster",
    }


def bare(x: Tensor) -> None:
    del x


def unchecked(x: Float[Tensor, "batch"]) -> Float[Tensor, "batch"]:
    return x


@shaped
def bare_in_a_tuple(x: Float[Tensor, "batch"], count: int) -> tuple[Tensor, int]:
    return x, count


@shaped
def unknown_axis(x: Float[Tensor, "batch lenght"] | None, past: Float[Tensor, "width-2"]) -> None:
    del x, past


@shaped
def any_axes(x: Float[Tensor, "batch ..."]) -> None:
    del x


@torch.no_grad()
def wrapped_by_another(x: Float[Tensor, "batch"]) -> None:
    del x


@shaped
def right(x: Float[Tensor, "batch 1 width-1"], run: Callable[[Tensor], Tensor]) -> Float[Tensor, "batch"]:
    del run
    return x[:, 0, 0]


def _private(x: Float[Tensor, "batch ..."], y) -> Float[Tensor, "_ chunk"]:
    del y
    return x


class Record(NamedTuple):
    x: Tensor
    count: int


class Layer(nn.Module):
    def __init__(self, weight: Float[Tensor, " state"]) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Float[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        return x

    def step(self, x: Tensor) -> Float[Tensor, "batch"]:
        return x

    def reset(self, batch: int) -> None:
        del batch


PLANTED = {
    bare: ["bare: is not shaped", "bare: x has no axes"],
    unchecked: ["unchecked: is not shaped"],
    bare_in_a_tuple: ["bare_in_a_tuple: return has no axes"],
    unknown_axis: ["unknown_axis: x has an unknown axis 'lenght'", "unknown_axis: past has an unknown axis 'width-2'"],
    any_axes: ["any_axes: x has an unknown axis '...'"],
    wrapped_by_another: ["wrapped_by_another: is not shaped"],
    right: [],
    _private: ["_private: y has no annotation"],
    Record: ["Record: x has no axes"],
    Layer: ["Layer.forward: is not shaped", "Layer.step: is not shaped", "Layer.step: x has no axes"],
}


@pytest.mark.parametrize("member", PLANTED, ids=lambda member: member.__name__)
def test_a_planted_fault_is_found(member, monkeypatch):
    module = ModuleType("planted")
    monkeypatch.setitem(sys.modules, "planted", module)
    vars(module)[member.__name__] = member
    monkeypatch.setattr(member, "__module__", "planted")
    if inspect.isclass(member):
        for function in filter(inspect.isfunction, vars(member).values()):
            monkeypatch.setattr(function, "__module__", "planted")
        monkeypatch.setitem(vars(module), "Tensor", Tensor)

    assert faults(module) == PLANTED[member]
