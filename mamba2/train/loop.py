"""The training loop: a generator, so that printing, plotting and stopping belong to whoever iterates over it."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import NamedTuple

from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.errors import TrainingError
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import Progress, checkpoint_name, load_training, named, tidy
from mamba2.train.distributed import ALONE, Processes, any_of, save, spread, turn_gradients, validate
from mamba2.train.failure import save_failed
from mamba2.train.optim import learning_rate, make_optimizer, set_learning_rate
from mamba2.train.plan import plan_epoch
from mamba2.train.records import data_digest


class Step(NamedTuple):
    """What one optimizer step did."""

    epoch: int
    step: int
    """Counted from 1 over all epochs."""
    steps: int
    """Of the whole run."""
    loss: float
    learning_rate: float
    gradient_norm: float
    """Before clipping."""
    bars: int


class Epoch(NamedTuple):
    """What one pass over the training windows did."""

    epoch: int
    train_loss: float
    validation_loss: float | None
    """None without validation windows."""
    seconds: float
    checkpoint: Path


class Saved(NamedTuple):
    """A checkpoint within an epoch."""

    epoch: int
    step: int
    checkpoint: Path


def fit(
    model: Forecaster,
    dataset: Dataset,
    config: RunConfig,
    out: Path,
    *,
    start: Path | None = None,
    stop: Event | None = None,
    processes: Processes = ALONE,
) -> Iterator[Step | Epoch | Saved]:
    """Trains the model where it is, and yields each step, epoch and checkpoint; these are in `out/checkpoints`.

    Args:
        out: the run's folder.
        start: the checkpoint to go on from, as if the run had never stopped; where it ends an epoch, that `Epoch` is
            yielded once more, for whoever was to be told may have been killed before.
        stop: once set, the step under way is the last: a checkpoint follows, and the generator ends.
        processes: those that train together, each with the same arguments; the first writes.

    Raises:
        TrainingError: a loss, gradient or state is not finite; the model is as it was before that step, and the batch
            is in `out/failed-batch`.
        CheckpointError: a checkpoint cannot be written, or `start` is damaged or of another run.
    """
    settings, windows, data = config.train, dataset.train, data_digest(dataset)
    optimizer = make_optimizer(model, settings)
    per_epoch = math.ceil(len(windows) / settings.batch)
    if start:
        done = load_training(start, model, optimizer, config, data)
        if processes.is_first and named(start).parent == out / "checkpoints":
            tidy(out / "checkpoints", last=named(start).name, best=done.best_name, keep=settings.keep)
        if done.step % per_epoch == 0:
            yield Epoch(done.step // per_epoch, done.loss_sum / per_epoch, done.validation, done.seconds, start)
    else:
        done = Progress(data=data, state=model.initial_state(settings.batch) if settings.carry_state else ())
    runner, steps = spread(model, processes), settings.epochs * per_epoch

    for epoch in range(done.step // per_epoch + 1, settings.epochs + 1):
        began, taken = time.perf_counter(), done.step % per_epoch
        done = done if taken else done._replace(loss_sum=0.0)
        model.train()
        for turn in plan_epoch(windows, settings, epoch)[taken:]:
            rate = learning_rate(done.step, steps, settings)
            set_learning_rate(optimizer, rate)
            found = turn_gradients(runner, windows, turn, done.state, settings, processes)
            if found.fault:
                raise TrainingError(save_failed(out, model, config, windows, turn, done, found, processes))
            optimizer.step()
            done = done._replace(step=done.step + 1, loss_sum=done.loss_sum + found.loss, state=found.state)
            yield Step(epoch, done.step, steps, found.loss, rate, found.norm, turn.windows.size * windows.length)
            stopping = any_of(stop is not None and stop.is_set(), processes)
            if done.step % per_epoch and (stopping or (settings.save_every and done.step % settings.save_every == 0)):
                yield Saved(epoch, done.step, save(out, model, optimizer, config, done, per_epoch, processes))
                if stopping:
                    return
        validation = validate(model, dataset.validation, settings.batch, processes)
        if validation is not None and not math.isfinite(validation):
            raise TrainingError(
                f"epoch {epoch}: the validation loss must be finite; got {validation}. Lower learning_rate and go on "
                "from the checkpoint before."
            )
        done = done.end_epoch(validation, time.perf_counter() - began, checkpoint_name(done.step, per_epoch))
        checkpoint = save(out, model, optimizer, config, done, per_epoch, processes)
        yield Epoch(epoch, done.loss_sum / per_epoch, validation, done.seconds, checkpoint)
        if any_of(stop is not None and stop.is_set(), processes):
            return
