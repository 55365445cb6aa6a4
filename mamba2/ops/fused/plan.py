"""How a call is cut into tiles, and those into chunks: measured on CPUs, see docs/performance.md."""

from collections.abc import Iterator
from typing import NamedTuple

from mamba2.shapes import shaped


class Plan(NamedTuple):
    """The sizes of the tiles of one call."""

    tile: int
    """Time steps that a tile holds, over all its rows; what one stage writes, the next then finds in a core's cache."""
    chunk: int
    """Time steps of a chunk."""


class Span(NamedTuple):
    """The time of a tile, cut into whole chunks."""

    start: int
    stop: int
    chunk: int


@shaped
def make_plan(time: int, d_state: int) -> Plan:
    """One chunk up to 96 steps, which is cheaper than to pass states on; else 32, or 64 where states are large.

    >>> make_plan(60, 16), make_plan(1000, 16)
    (Plan(tile=1024, chunk=60), Plan(tile=1024, chunk=32))
    """
    if time <= 96:
        return Plan(tile=1024, chunk=time)
    return Plan(tile=1024, chunk=32 if d_state < 128 else 64)


@shaped
def tiles(plan: Plan, batch: int, time: int) -> Iterator[tuple[slice, list[Span]]]:
    """Rows that run together, and the spans of time they go through one after the other.

    >>> [(rows.start, rows.stop, len(spans)) for rows, spans in tiles(Plan(tile=8, chunk=4), 3, 5)]
    [(0, 1, 2), (1, 2, 2), (2, 3, 2)]
    >>> next(tiles(Plan(tile=8, chunk=4), 1, 13))[1]
    [Span(start=0, stop=8, chunk=4), Span(start=8, stop=12, chunk=4), Span(start=12, stop=13, chunk=1)]
    """
    rows, step = max(1, plan.tile // time), max(1, plan.tile // plan.chunk) * plan.chunk
    whole = time // plan.chunk * plan.chunk
    spans = [Span(start, min(start + step, whole), plan.chunk) for start in range(0, whole, step)]
    if whole < time:
        spans.append(Span(whole, time, time - whole))
    for first in range(0, batch, rows):
        yield slice(first, min(first + rows, batch)), spans
