"""What a person sees of a run: a few lines before, a bar on a terminal, a line an epoch; and how to go on."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mamba2.config import RunConfig
from mamba2.train.loop import Epoch, Saved, Step
from mamba2.train.records import list_runs
from mamba2.train.run import Begun, Diverging, fit_files

_MEASURED = 10
"""Steps whose time tells that of the run; the first is left out, for it makes what later ones use again."""


class Stop(Event):
    """Set by the first SIGINT or SIGTERM, with its number; a second one ends the process as ever."""

    signal = 0


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within, SIGINT and SIGTERM ask for a stop after the step under way."""
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.signal = number
        stop.set()
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def train(files: Sequence[Path], config: RunConfig, out: Path, *, resume: bool, tensorboard: bool = False) -> int:
    """Trains with lines on the terminal; returns 0, or 128 + signal if one stopped the run before its end.

    Raises:
        Mamba2Error: as `fit_files`.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False, quiet=os.environ.get("RANK", "0") != "0")
    columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    epochs, checkpoint, times, bars = 0, None, list[float](), 0
    with stoppable() as stop, bar:
        task = bar.add_task("")
        for event in fit_files(files, config, out, resume=resume, stop=stop, tensorboard=tensorboard):
            times.append(time.perf_counter())
            if isinstance(event, Step):
                bars += event.bars
                said = f"loss {event.loss:.4f}  {bars / (times[-1] - times[0]):,.0f} bars/s"
                bar.update(task, completed=event.step, total=event.steps, description=said)
                if len(times) == _MEASURED + 1:
                    left = event.steps - event.step
                    seconds = left * (times[-1] - times[1]) / (_MEASURED - 1)
                    console.print(f"{seconds:.0f} s expected for the {left:,} steps left")
            else:
                console.print(line(event))
            if isinstance(event, Epoch | Saved):
                epochs, checkpoint = event.epoch - isinstance(event, Saved), event.checkpoint
    if not stop.signal or epochs == config.train.epochs:
        return 0
    console.print(f"stopped at {checkpoint}: the same command with --resume goes on from there")
    return 128 + stop.signal


def line(event: Begun | Epoch | Saved | Diverging) -> str:
    """What is said of an event."""
    if isinstance(event, Epoch):
        validation = "none" if event.validation_loss is None else f"{event.validation_loss:.4f}"
        losses = f"train loss {event.train_loss:.4f}  validation loss {validation}"
        return f"epoch {event.epoch}  {losses}  {event.seconds:.1f} s  {event.checkpoint}"
    if isinstance(event, Saved):
        return f"epoch {event.epoch}  step {event.step}  {event.checkpoint}"
    if isinstance(event, Diverging):
        return (
            f"warning: step {event.step}: the loss rises, {event.loss:.4f} after {event.lowest:.4f} "
            "(means of 20 steps). Lower learning_rate or look at the data."
        )
    data, found = event.dataset, event.preflight
    flawed = (
        f"warning: {data.degraded:,} bars are of days that condition.json marks; --skip-degraded leaves them out\n"
        if data.degraded
        else ""
    )
    return flawed + (
        f"{data.bars:,} of {data.messages:,} bars, {data.sequences:,} windows: {len(data.train):,} to "
        f"train, {len(data.validation):,} to validate, {data.purged:,} purged between\n"
        f"{found.parameters:,} parameters, about {found.memory / 1e9:.2g} GB, {found.flops / 1e9:.3g} GFLOP a step, "
        f"{event.steps:,} steps{f', going on from {event.start}' if event.start else ''}"
    )


def runs_table(folder: Path) -> Table:
    """All runs under a folder: how far they came, how good they are, and in which settings they differ.

    Raises:
        CheckpointError: there is none.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("run", "steps", "train", "validation"):
        table.add_column(column, justify="left" if column == "run" else "right", overflow="fold")
    table.add_column("differs in", overflow="fold")
    for run in list_runs(folder):
        losses = ["" if loss is None else f"{loss:.4f}" for loss in (run.train_loss, run.validation_loss)]
        settings = "\n".join(f"{name.partition('.')[2]} = {value}" for name, value in run.settings.items())
        table.add_row(run.name, f"{run.step:,}/{run.steps:,}", *losses, settings)
    return table
