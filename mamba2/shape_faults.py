"""What to say of a tensor that does not fit its annotation: one sentence, a table of its axes, a hint."""

import inspect
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from beartype import BeartypeConf
from beartype.door import is_bearable
from jaxtyping import AbstractArray
from torch import Tensor, nn

CONF = BeartypeConf(is_pep484_tower=True)
"""A whole number is a float too."""


class _Slot(NamedTuple):
    """One value of a call, a tensor or not: its name and the annotation it has to fit."""

    name: str
    value: Any
    annotation: Any


class _Bound(NamedTuple):
    """An axis size, and the tensor that fixed it."""

    size: int
    name: str
    shape: tuple[int, ...]


class Contract:
    """The annotations of one function, read so that a misfit can be put into words."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.where = function.__qualname__
        self.signature = inspect.signature(function)
        self.hints = get_type_hints(function)
        self.has_records = any(_is_record(part) for hint in self.hints.values() for part in _parts(hint))

    def takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether there is a parameter for each argument, and an argument for each parameter that needs one."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    def argument_fault(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """The first argument that does not fit, in words."""
        return _first_fault(self.where, self._arguments(args, kwargs))

    def result_fault(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> str | None:
        """The first argument or result that does not fit, in words."""
        results = _slots("result", result, self.hints.get("return", type(None)))
        return _first_fault(self.where, [*self._arguments(args, kwargs), *results])

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[_Slot]:
        bound = self.signature.bind(*args, **kwargs).arguments
        hinted = ((name, value, self.hints[name]) for name, value in bound.items() if name in self.hints)
        return [slot for each in hinted for slot in _slots(*each)]


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _is_array(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


def _slots(name: str, value: Any, hint: Any) -> Iterator[_Slot]:
    """A value and its annotation: those of NamedTuples, tuples and optional values part by part."""
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        if len(parts) == 1 and value is not None:
            yield from _slots(name, value, parts[0])
            return
    elif _is_record(hint) and isinstance(value, hint):
        for field, inner in get_type_hints(hint).items():
            yield from _slots(f"{name}.{field}", getattr(value, field), inner)
        return
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        hints = get_args(hint)
        hints = hints[:1] * len(value) if hints[-1] is Ellipsis else hints
        if len(hints) == len(value):
            for index, (each, inner) in enumerate(zip(value, hints, strict=True)):
                yield from _slots(f"{name}[{index}]", each, inner)
            return
    yield _Slot(name, value, hint)


def _first_fault(where: str, slots: list[_Slot]) -> str | None:
    bindings: dict[str, _Bound] = {}
    for slot in slots:
        if not _is_array(slot.annotation):
            if is_bearable(slot.value, slot.annotation, conf=CONF):
                continue
            wanted = str(slot.annotation) if get_args(slot.annotation) else slot.annotation.__name__
            return f"{where}: {slot.name} must be of type {wanted}; got {type(slot.value).__name__}."
        if (fault := _fault(slot, bindings)) is not None:
            lines = [f"{where}: {fault}", *_table(slot, bindings)]
            if (hint := _hint(slot, bindings)) is not None:
                lines.append(f"  hint: {hint}")
            return "\n".join(lines)
        sizes = zip(_axes(slot.annotation), slot.value.shape, strict=True)
        bindings.update(
            {axis: _Bound(size, slot.name, tuple(slot.value.shape)) for axis, size in sizes if axis not in bindings}
        )
    return None


def _axes(annotation: type[AbstractArray]) -> list[str]:
    return annotation.dim_str.split()


def _kind(slot: _Slot) -> str:
    """The annotation's dtype, in jaxtyping's words: Float, Int, Bool…"""
    return str(slot.annotation.__name__).partition("[")[0]


def _expected(axis: str, bindings: dict[str, _Bound]) -> tuple[int, str] | None:
    """The size an axis must have and where that comes from, if anything fixes it yet."""
    if axis.isdigit():
        return int(axis), "fixed"
    if axis in bindings:
        return bindings[axis].size, f"from {bindings[axis].name}"
    terms = re.findall(r"([+-]?)(\w+)", axis)
    names = [term for _, term in terms if not term.isdigit()]
    if len(terms) < 2 or not all(name in bindings for name in names):
        return None
    size = sum(int(f"{sign}1") * (bindings[term].size if term in names else int(term)) for sign, term in terms)
    sources = dict.fromkeys(bindings[name].name for name in names)
    return size, f"{axis}, from {' and '.join(sources)}"


def _fault(slot: _Slot, bindings: dict[str, _Bound]) -> str | None:
    """What is wrong with one tensor, in one sentence."""
    axes, value = _axes(slot.annotation), slot.value
    if not isinstance(value, Tensor):
        return f"{slot.name} must be a Tensor ({' '.join(axes)}); got {type(value).__name__}."
    shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
    if dtype not in slot.annotation.dtypes:
        return f"{slot.name} must be {_kind(slot)}; got {dtype} {shape}."
    if len(axes) != len(shape):
        return f"{slot.name} must have {len(axes)} axes ({' '.join(axes)}); got {len(shape)}: {shape}."
    for axis, size in zip(axes, shape, strict=True):
        expected = _expected(axis, bindings)
        if expected is None or expected[0] == size:
            continue
        if axis in bindings:
            return f"axis '{axis}' is {size} in {slot.name} {shape} but {expected[0]} in " + (
                f"{bindings[axis].name} {bindings[axis].shape}."
            )
        return f"axis '{axis}' is {size} in {slot.name} {shape} but must be {expected[0]} ({expected[1]})."
    return None


def _table(slot: _Slot, bindings: dict[str, _Bound]) -> list[str]:
    """Axis by axis, what was expected of a tensor and what it has."""
    axes, value = _axes(slot.annotation), slot.value
    got = [str(size) for size in value.shape] if isinstance(value, Tensor) else []
    if len(got) < len(axes):
        got = ["-"] * (len(axes) - len(got)) + got  # broadcasting habits: the leading axes are the missing ones
    rows = []
    for axis, size in zip(axes, got, strict=False):
        expected = _expected(axis, bindings)
        wanted = "any" if expected is None else f"{expected[0]} ({expected[1]})"
        wrong = size == "-" or (expected is not None and str(expected[0]) != size)
        rows.append((axis, wanted, size + (" <-- " if wrong else "").rstrip()))
    rows += [("(none)", "no such axis", f"{size} <--") for size in got[len(axes) :]]
    rows = [("axis", "expected", "got"), *rows]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"  {slot.name}: {_kind(slot)} ({' '.join(axes)})",
        *(f"    {axis:<{wide[0]}}  {wanted:<{wide[1]}}  {size}" for axis, wanted, size in rows),
    ]


def _moved(order: tuple[int, ...]) -> list[int]:
    return [place for place, axis in enumerate(order) if place != axis]


def _hint(slot: _Slot, bindings: dict[str, _Bound]) -> str | None:
    """The likely slip, where one fits: a missing batch, a weight for an activation, transposed axes."""
    axes, value = _axes(slot.annotation), slot.value
    if not isinstance(value, Tensor):
        return None
    sizes = [expected[0] if (expected := _expected(axis, bindings)) else None for axis in axes]

    def fits(shape: tuple[int, ...], wanted: list[int | None]) -> bool:
        return len(shape) == len(wanted) and all(w is None or w == s for s, w in zip(shape, wanted, strict=True))

    shape = tuple(value.shape)
    if fits(shape, sizes):
        return None  # only the dtype is wrong
    is_activation = axes[0] == "batch"
    if is_activation and isinstance(value, nn.Parameter):
        return f"{slot.name} is a weight, not an activation: was the layer passed in place of its output?"
    if is_activation and (fits(shape, sizes[1:]) or (len(shape) == len(axes) and fits(shape, [1, *sizes[1:]]))):
        return f"the batch is missing: expand {slot.name} over it."
    if is_activation and len(shape) == 2 < len(axes):
        return f"{slot.name} looks like a weight, not an activation: was the layer passed in place of its output?"
    if len(shape) == len(axes):
        for order in sorted(permutations(range(len(axes))), key=lambda order: len(_moved(order))):
            turned = tuple(shape[axis] for axis in order)
            # Any batch would fit an axis of unknown size.
            plausible = order[0] == 0 or all(sizes[axis] is not None for axis in _moved(order))
            if turned != shape and plausible and fits(turned, sizes):
                return f"the axes are transposed: {slot.name} fits as {turned}, {slot.name}.permute{order}."
    return None
