"""A training run's losses as a chart and as a table."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from mamba2.report.parts import Curve, Curves, Table

POINTS = 600
"""Most points of a curve: more than a screen has room for."""

_CAPTION = "Squared error of the mean plus pinball loss of the quantiles, per bar."


def loss_chart(
    steps: Sequence[float], epochs: Sequence[Mapping[str, Any]], per_epoch: float, untrained: float | None = None
) -> Curves:
    """All over epochs: the loss of a step stands where the step ends, that of the untrained model is a level.

    Args:
        steps: the loss of each optimizer step.
        epochs: each with `epoch` and `validation_loss`, which is None without validation.
        per_epoch: steps in an epoch.
        untrained: validation loss before the first step, if it was measured.
    """
    validated = [(epoch["epoch"], epoch["validation_loss"]) for epoch in epochs if epoch["validation_loss"] is not None]
    curves = []
    if steps:
        curves.append(step_curve("training", steps, per_epoch))
    if validated:
        ends, losses = zip(*validated, strict=True)
        curves.append(Curve("validation", ends, losses, "thick"))
    if untrained is not None:
        curves.append(Curve("validation, untrained", [0.0], [untrained], "level"))
    return Curves("epochs", "loss", curves, _CAPTION)


def step_curve(label: str, values: Sequence[float], per_epoch: float) -> Curve:
    """A value of each step over epochs; where there are too many, means of as many steps as it takes."""
    span = -(-len(values) // POINTS)
    groups = [values[first : first + span] for first in range(0, len(values), span)]
    ends = [min((index + 1) * span, len(values)) / per_epoch for index in range(len(groups))]
    what = "each step" if span == 1 else f"means of {span} steps"
    return Curve(f"{label}, {what}", ends, [sum(group) / len(group) for group in groups], "thin")


def epoch_table(epochs: Sequence[Mapping[str, Any]], best: int | None = None) -> Table:
    """A row an epoch; the best is said to be."""
    rows = [
        [
            f"{epoch['epoch']}{', the best' if epoch['epoch'] == best else ''}",
            f"{epoch['train_loss']:.4f}",
            "none" if epoch["validation_loss"] is None else f"{epoch['validation_loss']:.4f}",
            f"{epoch['seconds']:.1f} s",
            PurePath(epoch["checkpoint"]).name,
        ]
        for epoch in epochs
    ]
    return Table(("epoch", "training loss", "validation loss", "time", "checkpoint"), rows)
