"""Charts as inline SVG: drawn by matplotlib, coloured by the page, so that one drawing suits light and dark."""

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mamba2.report.parts import Curves, Forecasts

WIDTHS = {"wide": 9.6, "narrow": 4.6}
"""In inches; the page shows the one that fits the screen."""

_HEIGHT = 3.0

# matplotlib wants colours, the page wants variables: these stand for one another.
_INK, _FAINT, _FIRST, _SECOND, _WRONG = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {_INK: "--ink", _FAINT: "--faint", _FIRST: "--first", _SECOND: "--second", _WRONG: "--wrong"}
_COLOURS = (_FIRST, _SECOND, _INK)

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be selected, and takes the page's font
    "svg.hashsalt": "mamba2",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "grid.color": _FAINT,
    "grid.alpha": 0.4,
    "legend.frameon": False,
}


def draw(part: Curves | Forecasts, name: str) -> dict[str, str]:
    """One SVG for each of `WIDTHS`; the same part and name give the same text.

    Args:
        part: what is drawn.
        name: told apart from other charts of the page by it.
    """
    drawn = {}
    with matplotlib.rc_context(_STYLE):
        for width, inches in WIDTHS.items():
            figure = Figure(figsize=(inches, _HEIGHT), layout="constrained")
            axes = figure.subplots()
            if isinstance(part, Curves):
                _curves(axes, part, is_wide=width == "wide")
            else:
                _forecasts(axes, part, is_wide=width == "wide")
            drawn[width] = _svg(figure, f"{name}-{width}")
    return drawn


def _curves(axes: Axes, part: Curves, *, is_wide: bool) -> None:
    for curve, colour in zip(part.curves, _cycle(len(part.curves)), strict=True):
        match curve.style:
            case "level":
                axes.axhline(curve.y[0], color=_INK, linestyle="--", linewidth=1, label=curve.label)
            case "thin":
                axes.plot(curve.x, curve.y, color=colour, linewidth=1.2, label=curve.label)
            case _:
                axes.plot(curve.x, curve.y, color=colour, linewidth=2, marker="o", label=curve.label)
    axes.set(xlabel=part.x_label, ylabel=part.y_label)
    axes.set_xlim(left=0)
    axes.legend(ncols=4 if is_wide else 2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _forecasts(axes: Axes, part: Forecasts, *, is_wide: bool) -> None:
    """Bands between the quantiles that belong together, the median, what happened, segment starts and rolls."""
    bars, count = range(len(part.time)), len(part.levels)
    for outer in range(count // 2):
        low, high = part.levels[outer], part.levels[-1 - outer]
        axes.fill_between(
            bars,
            part.quantiles[outer],
            part.quantiles[-1 - outer],
            color=_FIRST,
            alpha=0.18 + 0.12 * outer,
            linewidth=0,
            label=f"{low:.0%}–{high:.0%}",
        )
    if count % 2:
        axes.plot(bars, part.quantiles[count // 2], color=_FIRST, linewidth=1.5, label=f"{part.levels[count // 2]:.0%}")
    happened = [(bar, value) for bar, value in zip(bars, part.actual, strict=True) if value is not None]
    axes.plot(*zip(*happened, strict=True), "o", color=_SECOND, markersize=2.5, label="happened")
    rolls = {bar: contract for bar, contract in enumerate(part.rolls) if contract}
    first = "a segment begins"
    for bar in (bar for bar, starts in zip(bars, part.starts, strict=True) if starts and bar not in rolls):
        axes.axvline(bar, color=_WRONG, linestyle="--", linewidth=1.2, label=first)
        first = "_"  # one entry in the legend is enough
    for bar, contract in rolls.items():
        axes.axvline(bar, color=_WRONG, linewidth=2, label=f"roll to {contract}")
    marks = 8 if is_wide else 4
    ticks = sorted({round(place * (len(bars) - 1) / marks) for place in range(marks + 1)})
    axes.set_xticks(ticks, [_clock(part.time[tick]) for tick in ticks])
    axes.set(xlabel="when the bar opens (UTC)", ylabel=part.y_label, xlim=(-0.5, len(bars) - 0.5))
    axes.legend(ncols=6 if is_wide else 3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _cycle(count: int) -> Sequence[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(count)]


def _clock(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // 10**9, UTC).strftime("%H:%M")


def _svg(figure: Figure, name: str) -> str:
    """The figure without preamble, date or fixed size, its colours by name, its ids the only ones of the page."""
    written = io.StringIO()
    FigureCanvasSVG(figure).print_svg(written, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg.strip()
