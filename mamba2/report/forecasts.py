"""Forecasts to draw, and what is said beside the drawing."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mamba2.report.parts import Forecasts, Text


def forecasts_of(stretch: Mapping[str, Any], target: str, where: str) -> Forecasts:
    """The part that draws consecutive bars.

    Args:
        stretch: the fields of an `evaluation.stretch.Stretch`.
        target: what was forecast.
        where: the bars are from.
    """
    opened = f"{datetime.fromtimestamp(stretch['began'] // 10**9, UTC):%Y-%m-%d %H:%M} UTC"
    return Forecasts(
        time=stretch["time"],
        starts=stretch["starts"],
        actual=stretch["actual"],
        levels=stretch["levels"],
        quantiles=stretch["quantiles"],
        y_label=f"{target}, in volatilities",
        caption=f"{stretch['symbol']}, {where}, as live: the state is carried from {opened}, where the segment began.",
        rolls=stretch["rolls"],
    )


def hits(shown: Forecasts) -> Text:
    """How often what happened lay between the outermost quantiles, next to how often it should."""
    triples = zip(shown.quantiles[0], shown.actual, shown.quantiles[-1], strict=True)
    within = [low <= value <= high for low, value, high in triples if value is not None]
    low, high = shown.levels[0], shown.levels[-1]
    return Text(
        f"{sum(within)} of {len(within)} outcomes lie between {low:.0%} and {high:.0%}; "
        f"{(high - low) * len(within):.0f} are to be expected."
    )
