"""Every tensor of the maths and of the model has its axes named, and every public function checks them."""

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from inspect import get_annotations
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from jaxtyping import AbstractArray
from torch import Tensor, nn

import mamba2.model
import mamba2.ops
from mamba2 import shapes
from mamba2.shapes import AXES

MODULES = [
    importlib.import_module(each.name)
    for room in (mamba2.ops, mamba2.model)
    for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
]


def faults(module: ModuleType, *, is_maths: bool) -> list[str]:
    """What the module's own functions, methods and records lack; those of the maths must check themselves."""
    found = []
    for name, member in vars(module).items():
        if getattr(member, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(member):
            found += _faults(name, member, must_check=is_maths and not name.startswith("_"))
        elif inspect.isclass(member):
            own = {field: hint for field, hint in get_type_hints(member).items() if field in get_annotations(member)}
            found += [f"{name}: {fault}" for fault in _hint_faults(own)]
            for method, function in vars(member).items():
                if inspect.isfunction(function) and function.__module__ == module.__name__:
                    is_run = issubclass(member, nn.Module) and method in ("forward", "residual", "step")
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
    free = () if checks else ("_", "*_", "...")  # what a private helper works on may have any number of axes
    yield from (f"{where}: {fault}" for fault in _hint_faults(hints, free))


def _hint_faults(hints: dict[str, Any], free: tuple[str, ...] = ()) -> Iterator[str]:
    for name, hint in hints.items():
        for part in _parts(hint):
            if part in (Tensor, nn.Parameter):
                yield f"{name} has no axes"
            elif isinstance(part, type) and issubclass(part, AbstractArray):
                for axis in part.dim_str.split():
                    known = axis.isdigit() or all(term in AXES or term == "1" for term in re.split("[+-]", axis))
                    if not known and axis not in free:
                        yield f"{name} has an unknown axis {axis!r}"


def _parts(hint: Any) -> Iterator[Any]:
    """A hint and what it is made of; what a callable takes and gives is its own business."""
    yield hint
    if get_origin(hint) is not Callable:
        for part in get_args(hint):
            yield from _parts(part)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_tensor_has_its_axes_and_every_public_function_checks_them(module):
    assert faults(module, is_maths=module.__name__.startswith("mamba2.ops")) == []


def test_the_walk_meets_all_ops_and_models():
    assert {module.__name__ for module in MODULES} >= {
        "mamba2.ops.conv",
        "mamba2.ops.norm",
        "mamba2.ops.scan",
        "mamba2.model.backbone",
        "mamba2.model.block",
        "mamba2.model.forecaster",
    }


HEADER = """\
from collections.abc import Callable
from typing import NamedTuple
import torch
from jaxtyping import Float
from torch import Tensor, nn
from mamba2.shapes import shaped
"""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(x: Tensor) -> None: ...", ["f: is not shaped", "f: x has no axes"]),
        ("def f(x: Float[Tensor, 'batch time']) -> None: ...", ["f: is not shaped"]),
        ("@torch.no_grad()\ndef f(x: Float[Tensor, 'batch time']) -> None: ...", ["f: is not shaped"]),
        ("@shaped\ndef f(n: int) -> tuple[Tensor, int]: ...", ["f: return has no axes"]),
        ("@shaped\ndef f(x: Tensor | None) -> None: ...", ["f: x has no axes"]),
        ("@shaped\ndef f(x: Float[Tensor, 'batch lenght'] | None) -> None: ...", ["f: x has an unknown axis 'lenght'"]),
        ("@shaped\ndef f(x: Float[Tensor, 'width-2 conv']) -> None: ...", ["f: x has an unknown axis 'width-2'"]),
        ("@shaped\ndef f(x: Float[Tensor, 'batch ...']) -> None: ...", ["f: x has an unknown axis '...'"]),
        ("@shaped\ndef f(x: Float[Tensor, 'batch 1 width-1'], run: Callable[[Tensor], Tensor]) -> None: ...", []),
        ("def _f(x: Float[Tensor, 'batch ...']) -> Float[Tensor, '_ chunk']: ...", []),
        ("def _f(x: Tensor) -> None: ...", ["_f: x has no axes"]),
        ("def _f(x, y: int) -> None: ...", ["_f: x has no annotation"]),
        ("class C(NamedTuple):\n    x: Tensor\n    n: int", ["C: x has no axes"]),
        ("class C(nn.Module):\n    def forward(self, x: Float[Tensor, 'batch 1']): ...", ["C.forward: is not shaped"]),
        ("class C(nn.Module):\n    def step(self, x: Tensor): ...", ["C.step: is not shaped", "C.step: x has no axes"]),
        ("class C(nn.Module):\n    @shaped\n    def step(self, x: Float[Tensor, 'batch 1']): ...", []),
        ("class C(nn.Module):\n    def _run(self, x: Tensor): ...", ["C._run: x has no axes"]),
    ],
)
def test_a_planted_fault_is_found(source, found, tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text(f"{HEADER}{source}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)

    assert faults(importlib.import_module("planted"), is_maths=True) == found
