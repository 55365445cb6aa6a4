"""What a page is made of: plain values, which any command fills in and `page.render` draws."""

from collections.abc import Sequence
from typing import NamedTuple

from mamba2.report.flow import Flow


class Check(NamedTuple):
    """One line of a checklist."""

    name: str
    passed: bool | None
    """None where it was not made."""
    detail: str
    """May have several lines; the first is the headline."""
    seconds: float | None = None
    """None where nothing was timed."""


class Checklist(NamedTuple):
    """Checks in the order in which they were made."""

    checks: Sequence[Check]


class Figure(NamedTuple):
    """One number that is to be seen from afar, already in words."""

    value: str
    label: str


class Figures(NamedTuple):
    """Numbers side by side."""

    figures: Sequence[Figure]


class Table(NamedTuple):
    """Rows of text, the first column being their names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[int] = ()
    """Rows in red."""


class Text(NamedTuple):
    """A paragraph."""

    text: str
    is_wrong: bool = False


class Code(NamedTuple):
    """Lines to copy, as they are."""

    text: str


class Curve(NamedTuple):
    """One line of a chart."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str
    """'thin', 'thick' with a mark at each point, or 'level': dashed, across the whole chart."""


class Curves(NamedTuple):
    """A chart of curves over one another."""

    x_label: str
    y_label: str
    curves: Sequence[Curve]
    caption: str = ""


class Forecasts(NamedTuple):
    """What was forecast at consecutive bars, and what happened."""

    time: Sequence[int]
    """When each bar opens, nanoseconds UTC."""
    starts: Sequence[bool]
    """Which bars begin a segment."""
    actual: Sequence[float | None]
    """What happened, in units of the bar's volatility; None where the segment ends before."""
    levels: Sequence[float]
    quantiles: Sequence[Sequence[float]]
    """One sequence a level, over the bars, in the same units."""
    y_label: str
    caption: str = ""
    rolls: Sequence[str] = ()
    """The contract's name at each bar that is the first after a roll, else ""; nothing where there is no roll."""


Part = Checklist | Figures | Table | Text | Code | Curves | Forecasts | Flow
"""Everything a section can hold."""


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    parts: Sequence[Part]


class Page(NamedTuple):
    """A whole report."""

    title: str
    passed: bool | None
    """The verdict at the top; None where there is nothing to judge."""
    summary: str
    sections: Sequence[Section]
    words: tuple[str, str] = ("passed", "failed")
    """What the verdict is called, if it is good and if it is bad."""
