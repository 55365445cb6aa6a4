"""One whole run in one call: files of bars to a trained model in a folder that tells how it came to be."""

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

import torch

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset, prepare
from mamba2.errors import CheckpointError
from mamba2.train.board import board_writer, boarded
from mamba2.train.checkpoint import make_model, newest, require_same_run
from mamba2.train.device import choose_device
from mamba2.train.distributed import any_of, joined, own_device
from mamba2.train.loop import Epoch, Saved, Step, fit
from mamba2.train.preflight import Preflight, preflight, require_room
from mamba2.train.records import append_metrics, rewind_metrics, write_run
from mamba2.train.runs import record_files


class Begun(NamedTuple):
    """What a run is about to do."""

    dataset: Dataset
    preflight: Preflight
    steps: int
    """Of the whole run."""
    start: Path | None
    """The checkpoint it goes on from."""
    is_first: bool
    """Whether this process is the one to print."""


class Diverging(NamedTuple):
    """The loss has risen: its mean over the last steps is twice the lowest such mean before."""

    step: int
    loss: float
    lowest: float


_SPAN = 20
"""Steps over which losses are averaged before they are compared."""


def fit_files(
    files: Sequence[Path],
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    stop: Event | None = None,
    tensorboard: bool = False,
) -> Iterator[Begun | Step | Epoch | Saved | Diverging]:
    """Trains on files of bars, all that `mamba2 train` does; under torchrun this process is one of several.

    Writes `config.toml`, `run.json`, `metrics.jsonl` and `checkpoints` in `out`; nothing before data and model passed.

    Args:
        resume: go on from the newest checkpoint in `out`, or begin where there is none.
        stop: once set, the step under way is the last, and a checkpoint follows.
        tensorboard: write `out/tensorboard` as well.

    Raises:
        DataError: a file is refused, or there is nothing to train on.
        ConfigError: the device is not there, or has too little memory; TensorBoard is asked for and not installed.
        ShapeError: the model's functions do not fit one another.
        CheckpointError: `out` holds something and `resume` is not set, or holds another run, or cannot be written.
        TrainingError: a loss, gradient or state is not finite.
    """
    make_writer = board_writer() if tensorboard else None
    with joined() as processes:
        start = find_start(out, config, resume)
        any_of(False, processes)  # all have looked before the first writes
        device = choose_device(own_device(config.train.device))
        dataset = prepare(files, config.data)
        found = preflight(config, processes.world)
        require_room(found, device)
        steps = config.train.epochs * math.ceil(len(dataset.train) / config.train.batch)
        yield Begun(dataset, found, steps, start, processes.is_first)

        torch.manual_seed(config.train.seed)
        model = make_model(config).to(device)
        events = fit(model, dataset, config, out, start=start, stop=stop, processes=processes)
        if not processes.is_first:
            yield from events
            return
        if not (out / "run.json").is_file():
            record_files(out, files)  # first: where run.json is, this is too
            write_run(out, files, config, dataset, found.parameters)
        per_epoch = steps // config.train.epochs
        events = recorded(events, out, per_epoch)
        yield from warned(boarded(events, out, per_epoch, make_writer) if make_writer else events)


def find_start(out: Path, config: RunConfig, resume: bool) -> Path | None:
    """The checkpoint that a run in `out` goes on from; None if it begins.

    Raises:
        CheckpointError: `out` holds something and `resume` is not set, or it holds another run.
    """
    is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    if is_new:
        return None
    if not resume:
        raise CheckpointError(
            f"{out}: must be a new or empty folder, a run is never written over. "
            "Choose another --out, or go on with --resume."
        )
    if (out / "config.toml").is_file():
        require_same_run(out, RunConfig.load(out / "config.toml"), config)
    return newest(out / "checkpoints")


def recorded(events: Iterator[Step | Epoch | Saved], out: Path, per_epoch: int) -> Iterator[Step | Epoch | Saved]:
    """Passes events on once they are lines of `metrics.jsonl`, where lines of steps taken again are dropped first.

    A step's line says how many seconds it took, whoever iterates over the events left out.
    """
    is_rewound, before = False, time.perf_counter()
    for event in events:
        if not isinstance(event, Saved):
            values = {"step": event.epoch * per_epoch, "seconds": time.perf_counter() - before, **event._asdict()}
            if not is_rewound:
                rewind_metrics(out, values["step"] - isinstance(event, Step))
                is_rewound = True
            values.pop("checkpoint", None)
            append_metrics(out, {"kind": "step" if isinstance(event, Step) else "epoch", **values})
        yield event
        before = time.perf_counter()


def warned(events: Iterator[Step | Epoch | Saved]) -> Iterator[Step | Epoch | Saved | Diverging]:
    """Passes events on, and a warning after the step at which the loss has doubled, once for each new low."""
    recent: list[float] = []
    lowest, is_warned = math.inf, False
    for event in events:
        yield event
        if not isinstance(event, Step):
            continue
        recent = [*recent[1 - _SPAN :], event.loss]
        loss = sum(recent) / len(recent)
        if len(recent) == _SPAN and loss < lowest:
            lowest, is_warned = loss, False
        elif loss > 2 * lowest and not is_warned:
            is_warned = True
            yield Diverging(event.step, loss, lowest)
