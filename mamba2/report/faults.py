"""Reads a shape error's text back into its parts, so that a page can draw them."""

import re
from typing import NamedTuple

_SENTENCE = re.compile(r"(?:ShapeError: )?(?P<function>[A-Za-z_][\w.]*): (?P<rest>.+)")
_ARGUMENT = re.compile(r"(?:axis '[^']+' is \d+ in )?(?P<argument>[A-Za-z_][\w.\[\]]*) ")
_ROW = re.compile(r" {4}(?P<axis>\S+) {2,}(?P<expected>.+?) {2,}(?P<got>\S+)(?P<wrong> <--)?")
_HINT = "  hint: "


class AxisRow(NamedTuple):
    """One axis of the tensor that does not fit."""

    axis: str
    expected: str
    got: str
    is_wrong: bool


class ShapeFault(NamedTuple):
    """What a `ShapeError` says."""

    function: str
    argument: str
    """The tensor that does not fit, by its name in the function."""
    sentence: str
    rows: tuple[AxisRow, ...]
    """Empty where the error has no table."""
    hint: str
    """Empty where there is none."""


def read_fault(text: str) -> ShapeFault | None:
    """The parts of a shape error's text, with or without "ShapeError: " before it; None where it is no such text.

    >>> read_fault("scan_step: axis 'state' is 8 in C (2, 1, 1, 8) but 16 in B (2, 1, 1, 16).")[:2]
    ('scan_step', 'C')
    """
    headline, *lines = text.split("\n")
    if (found := _SENTENCE.fullmatch(headline)) is None:
        return None
    argument = _ARGUMENT.match(found["rest"])
    rows = [row for line in lines[2:] if (row := _ROW.fullmatch(line))]
    hints = [line.removeprefix(_HINT) for line in lines if line.startswith(_HINT)]
    return ShapeFault(
        function=found["function"],
        argument="" if argument is None else argument["argument"],
        sentence=found["rest"],
        rows=tuple(AxisRow(row["axis"], row["expected"], row["got"], row["wrong"] is not None) for row in rows),
        hint=hints[0] if hints else "",
    )
