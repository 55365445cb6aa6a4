"""The page of the smoke test, from the dict that `report.json` holds and what was seen on the way."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mamba2.report.faults import ShapeFault, read_fault
from mamba2.report.flow import Flow, mark
from mamba2.report.forecasts import hits
from mamba2.report.losses import epoch_table, loss_chart
from mamba2.report.parts import (
    Check,
    Checklist,
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
    took = sum(each["seconds"] for each in report["checks"])
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
        chart = loss_chart(seen.losses, epochs, len(seen.losses) / len(epochs), report["validation_loss_before"])
        yield Section("Loss", [chart, epoch_table(epochs)])
    if seen.forecasts is not None:
        yield Section("Forecasts against what happened", [seen.forecasts, hits(seen.forecasts)])


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
