"""Changes the code of functions where they are, so that whoever has imported them runs the change."""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import mamba2
from mamba2 import shapes


def graft(module: ModuleType, tree: ast.Module) -> None:
    """Gives the functions and constants of a module the code and the values that another source has for them."""
    fresh: dict[str, Any] = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(tree, str(module.__file__), "exec"), fresh)
    for name, new in fresh.items():
        if getattr(new, "__module__", None) != module.__name__:
            setattr(module, name, new)
        elif inspect.isclass(new):
            for method, function in vars(new).items():
                _replace(vars(vars(module)[name]).get(method), function)
        else:
            _replace(vars(module)[name], new)


def _replace(old: Any, new: Any) -> None:
    """Gives a function, bare or in wrappers, the code of another; leaves everything else alone."""
    old, new = (inspect.unwrap(getattr(each, "__func__", each)) for each in (old, new))
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def shaped_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function and method of the package that checks its shapes, with its name."""
    root = Path(mamba2.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "@shaped" not in path.read_text(encoding="utf-8"):
            continue
        room = ".".join(path.relative_to(root).with_suffix("").parts)
        module = importlib.import_module(f"mamba2.{room}")
        own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
        classes = (each for each in own.values() if inspect.isclass(each))
        for each in (*own.values(), *(method for cls in classes for method in vars(cls).values())):
            if inspect.isfunction(each) and each.__globals__ is vars(shapes) and hasattr(each, "__wrapped__"):
                yield f"{room}.{each.__qualname__}", each


def remove_check(function: Callable[..., Any]) -> None:
    """Makes a `shaped` function one that checks nothing."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
    inner = function.__wrapped__
    cells["check"].cell_contents = lambda args, kwargs: inner(*args, **kwargs)
