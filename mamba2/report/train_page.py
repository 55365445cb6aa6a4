"""The page of a training run, from the dict that its `report.json` holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mamba2.report.flow import Flow
from mamba2.report.losses import epoch_table, loss_chart, step_curve
from mamba2.report.parts import Check, Checklist, Code, Curves, Figure, Figures, Page, Section, Table, Text


class Seen(NamedTuple):
    """What the page shows beside the report."""

    flow: Flow
    settings: str
    """The config as TOML."""
    losses: Sequence[float] = ()
    """Of each optimizer step."""
    norms: Sequence[float] = ()
    """The gradient's, before clipping."""


def train_page(report: Mapping[str, Any], seen: Seen) -> Page:
    """The whole page, in whatever state the run ended."""
    passed = {"finished": True, "stopped": None, "failed": False}[report["outcome"]]
    sections = [Section("Facts", [Checklist(list(_facts(report)))])]
    if report["fault"] is not None:
        sections.insert(0, Section("What went wrong", [Text(report["fault"], is_wrong=True)]))
    sections.append(Section("In numbers", [Figures(list(_figures(report)))]))
    if seen.losses:
        per_epoch = report["steps"] / report["of_epochs"]
        loss = loss_chart(seen.losses, report["epochs"], per_epoch)
        norm = Curves("epochs", "norm", [step_curve("gradient norm", seen.norms, per_epoch)], "Before clipping.")
        sections.append(Section("Loss", [loss, epoch_table(report["epochs"], report["best"])]))
        sections.append(Section("Gradients", [norm]))
    versions = [[name, number] for name, number in report["versions"].items()]
    sections += [
        Section("Shapes, from bars to forecast", [seen.flow]),
        Section("Settings", [Code(seen.settings)]),
        Section("Versions", [Table(("package", "version"), versions)]),
    ]
    return Page(f"mamba2 train: {report['run']}", passed, _summary(report), sections, words=("finished", "failed"))


def _summary(report: Mapping[str, Any]) -> str:
    place = f"step {report['step']:,} of {report['steps']:,} on {report['device']}"
    return {
        "finished": f"All {report['of_epochs']} epochs are done, on {report['device']}.",
        "stopped": f"Stopped after {place}; the same command with --resume goes on.",
        "failed": f"Ended by an error after {place}.",
    }[report["outcome"]]


def _facts(report: Mapping[str, Any]) -> Iterator[Check]:
    epochs, data, git = report["epochs"], report["data"], report["git"]
    is_done, is_finite = report["outcome"] == "finished", report["outcome"] != "failed"
    done = f"{report['step']:,} of {report['steps']:,} steps, {len(epochs)} of {report['of_epochs']} epochs"
    yield Check("all steps", True if is_done else None if is_finite else False, done)
    yield Check(
        "finite", is_finite, "every loss, gradient and state" if is_finite else report["fault"].partition(". ")[0]
    )
    if len(epochs) > 1:
        first, last = epochs[0]["train_loss"], epochs[-1]["train_loss"]
        yield Check("training loss fell", last < first, f"{first:.4f} in the first epoch, {last:.4f} in the last")
    if report["best"] is not None:
        best = next(epoch for epoch in epochs if epoch["epoch"] == report["best"])
        lowest, last = best["validation_loss"], epochs[-1]["validation_loss"]
        yield Check("validation loss", True, f"lowest in epoch {best['epoch']}: {lowest:.4f}; {last:.4f} in the last")
    else:
        yield Check("validation loss", None, "no validation windows, or no epoch is done")
    files = f"{len(data['files'])} files; SHA-256 of what training saw: {data['digest'][:16]}…"
    yield Check("data", True, "\n".join([files, *data["files"]]))
    state = "not in a git repository" if git is None else f"commit {git['commit'][:12]}"
    is_changed = git is not None and git["changed"]
    yield Check("code", None if git is None or is_changed else True, f"{state}{', with changes' * is_changed}")


def _figures(report: Mapping[str, Any]) -> Iterator[Figure]:
    data = report["data"]
    if report["bars_per_second"] is not None:
        yield Figure(f"{report['bars_per_second']:,.0f}", "bars a second in training steps")
    if report["peak_memory"] is not None:
        yield Figure(f"{report['peak_memory'] / 2**20:,.0f} MiB", "memory of the last process at its peak")
    yield Figure(f"{report['parameters']:,}", "parameters")
    yield Figure(f"{data['bars']:,} of {data['messages']:,}", "records in the files that are bars of the contract")
    yield Figure(f"{data['train_sequences']:,} + {data['validation_sequences']:,}", "windows to train and to validate")
