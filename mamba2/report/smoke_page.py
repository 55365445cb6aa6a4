"""The page of the smoke test, from the dict that `report.json` holds and what was seen on the way."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from mamba2.report.faults import ShapeFault, read_fault
from mamba2.report.flow import Flow, mark
from mamba2.report.parts import (
    Check,
    Checklist,
    Curve,
    Curves,
    Figure,
    Figures,
    Forecasts,
    Page,
    Section,
    Table,
    Text,
)


class Seen(NamedTuple):
    """What the page shows beside the report."""

    flow: Flow
    losses: Sequence[float] = ()
    """Of each optimizer step."""
    bars: int = 0
    """Trained on, over all epochs."""
    peak_memory: int | None = None
    """In bytes."""
    forecasts: Forecasts | None = None
    functions: Sequence[str] = ()
    """Where it failed, outermost first."""


def smoke_page(report: Mapping[str, Any], seen: Seen) -> Page:
    """The whole page, in whatever state the run ended."""
    checks = [Check(each["name"], each["passed"], each["detail"], each["seconds"]) for each in report["checks"]]
    failed = next((check for check in checks if check.passed is False), None)
    flow, fault = _flow(seen, failed)
    shapes = Section("Shapes, from bars to forecast", [flow])
    sections = [Section("Checks", [Checklist(checks)])]
    if failed is not None:
        sections.insert(0, Section(f"What went wrong: {failed.name}", list(_complaint(failed, fault))))
    if fault is not None:
        sections.append(shapes)
    sections += _results(report, seen)
    if fault is None:
        sections.append(shapes)
    versions = [[name, number] for name, number in report["versions"].items()]
    sections.append(Section("Versions", [Table(("package", "version"), versions)]))
    return Page("mamba2 smoke", report["passed"], _summary(report, checks), sections)


def _summary(report: Mapping[str, Any], checks: Sequence[Check]) -> str:
    held = sum(check.passed is True for check in checks)
    took = sum(check.seconds for check in checks)
    return f"{held} of {len(checks)} checks held, in {took:.1f} s on {report['device']}."


def _complaint(failed: Check, fault: ShapeFault | None) -> Iterator[Text]:
    yield Text(failed.detail.partition("\n")[0], is_wrong=True)
    if fault is not None and fault.hint:
        yield Text(f"Hint: {fault.hint}")


def _flow(seen: Seen, failed: Check | None) -> tuple[Flow, ShapeFault | None]:
    """The flow with what failed in red, if it is in the flow: by a shape error's text, else by where it was raised."""
    if failed is None:
        return seen.flow, None
    headline = failed.detail.partition("\n")[0]
    named = read_fault(failed.detail) if headline.startswith("ShapeError: ") else None
    raised = [ShapeFault(name, "", headline, (), "") for name in reversed(seen.functions)]
    for fault in raised if named is None else [named, *raised]:
        marked = mark(seen.flow, fault)
        if marked != seen.flow:
            return marked, fault
    return seen.flow, None


def _results(report: Mapping[str, Any], seen: Seen) -> Iterator[Section]:
    epochs, figures = report["epochs"], list(_figures(report, seen))
    if figures:
        yield Section("In numbers", [Figures(figures)])
    if epochs:
        yield Section("Loss", [_losses(report, seen), _epoch_table(epochs)])
    if seen.forecasts is not None:
        yield Section("Forecasts against what happened", [seen.forecasts, Text(_hits(seen.forecasts))])


def _figures(report: Mapping[str, Any], seen: Seen) -> Iterator[Figure]:
    epochs, data = report["epochs"], report["data"]
    if epochs and epochs[-1]["validation_loss"] is not None:
        before, after = report["validation_loss_before"], epochs[-1]["validation_loss"]
        yield Figure(f"{before:.3f} → {after:.3f}", "validation loss, untrained → trained")
    seconds = sum(epoch["seconds"] for epoch in epochs)
    if seen.bars and seconds:
        yield Figure(f"{seen.bars / seconds:,.0f}", "bars a second, validation and checkpoints included")
    if seen.peak_memory is not None:
        yield Figure(f"{seen.peak_memory / 2**20:,.0f} MiB", "memory at its peak")
    if "parameters" in report["model"]:
        yield Figure(f"{report['model']['parameters']:,}", "parameters")
    if "bars" in data:
        yield Figure(f"{data['bars']:,} of {data['messages']:,}", "records in the files that are bars of the contract")
    if "train_sequences" in data:
        yield Figure(
            f"{data['train_sequences']} + {data['validation_sequences']}", "sequences to train and to validate"
        )


def _losses(report: Mapping[str, Any], seen: Seen) -> Curves:
    """All over epochs: the loss of a step stands where the step ends, the untrained model's at 0."""
    epochs, before = report["epochs"], report["validation_loss_before"]
    validated = [(epoch["epoch"], epoch["validation_loss"]) for epoch in epochs if epoch["validation_loss"] is not None]
    curves = []
    if seen.losses:
        per_epoch = len(seen.losses) / len(epochs)
        steps = [(step + 1) / per_epoch for step in range(len(seen.losses))]
        curves.append(Curve("training, each step", steps, list(seen.losses), "thin"))
    if validated:
        ends, losses = zip(*validated, strict=True)
        curves.append(Curve("validation", ends, losses, "thick"))
    if before is not None:
        curves.append(Curve("validation, untrained", [0.0], [before], "level"))
    return Curves("epochs", "loss", curves, "Squared error of the mean plus pinball loss of the quantiles, per bar.")


def _hits(shown: Forecasts) -> str:
    """How often what happened lay between the outermost quantiles, next to how often it should."""
    triples = zip(shown.quantiles[0], shown.actual, shown.quantiles[-1], strict=True)
    within = [low <= value <= high for low, value, high in triples if value is not None]
    low, high = shown.levels[0], shown.levels[-1]
    return (
        f"{sum(within)} of {len(within)} outcomes lie between {low:.0%} and {high:.0%}; "
        f"{(high - low) * len(within):.0f} are to be expected."
    )


def _epoch_table(epochs: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            str(epoch["epoch"]),
            f"{epoch['train_loss']:.4f}",
            "none" if epoch["validation_loss"] is None else f"{epoch['validation_loss']:.4f}",
            f"{epoch['seconds']:.1f} s",
            PurePath(epoch["checkpoint"]).name,
        ]
        for epoch in epochs
    ]
    return Table(("epoch", "training loss", "validation loss", "time", "checkpoint"), rows)
