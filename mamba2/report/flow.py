"""The shape flow: a model as boxes one below the other, with the axes of every tensor on the arrows between them."""

from collections.abc import Sequence
from typing import NamedTuple

from mamba2.report.faults import ShapeFault


class Axis(NamedTuple):
    """An axis of a tensor."""

    name: str
    size: int
    got: str = ""
    """What it was instead, where that is wrong."""


class Arrow(NamedTuple):
    """A tensor on its way into a box, by the name of the argument there."""

    name: str
    axes: Sequence[Axis]
    source: str = ""
    """What it is, or where it comes from, if that is not the result of the box above."""
    is_wrong: bool = False


class Box(NamedTuple):
    """A function or layer, and what goes into it."""

    name: str
    arrows: Sequence[Arrow]
    does: str
    """What it computes, in one line."""
    also: str = ""
    """The function that stands here in a step."""
    fault: ShapeFault | None = None


class Group(NamedTuple):
    """Boxes of one module."""

    name: str
    boxes: Sequence[Box]
    note: str = ""
    fault: ShapeFault | None = None


class Flow(NamedTuple):
    """A model from top to bottom."""

    groups: Sequence[Group]
    results: Sequence[Arrow]
    caption: str = ""


def mark(flow: Flow, fault: ShapeFault) -> Flow:
    """The flow with the function, the argument and the axes in red that a shape error names.

    Of two boxes of one name the first is meant; a method marks the group of its class, if it has no box.
    """
    groups = list(flow.groups)
    function, module = fault.function, fault.function.partition(".")[0]
    for index, group in enumerate(groups):
        is_module = group.name == module
        hit = next((place for place, box in enumerate(group.boxes) if function in (box.name, box.also)), None)
        if hit is None and not is_module:
            continue
        boxes = list(group.boxes)
        if hit is None:
            boxes = [box._replace(arrows=_marked(box.arrows, fault)) for box in boxes]
        else:
            boxes[hit] = boxes[hit]._replace(arrows=_marked(boxes[hit].arrows, fault), fault=fault)
        groups[index] = group._replace(boxes=boxes, fault=fault if hit is None else None)
        break
    return flow._replace(groups=groups)


def _marked(arrows: Sequence[Arrow], fault: ShapeFault) -> list[Arrow]:
    """The arrows, that of the argument in red; the state's parts go by where they come from: `state.conv`."""
    got = {row.axis: row.got for row in fault.rows if row.is_wrong}
    return [
        arrow._replace(axes=[axis._replace(got=got.get(axis.name, "")) for axis in arrow.axes], is_wrong=True)
        if fault.argument and fault.argument in (arrow.name, arrow.source)
        else arrow
        for arrow in arrows
    ]
