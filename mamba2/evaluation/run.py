"""The evaluations of a run as a command shows them: from its folder and files to lines, values and a fault."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mamba2.config import RunConfig
from mamba2.data.bars import load_bars, require_interval
from mamba2.data.dataset import make_tracks, split
from mamba2.data.synthetic import are_synthetic
from mamba2.errors import DataError
from mamba2.evaluation.controls import surrogate_control, walk_forward
from mamba2.evaluation.judge import held_back, observe, report
from mamba2.evaluation.stretch import Stretch, forecast_stretch
from mamba2.evaluation.table import (
    evaluation_lines,
    leak_fault,
    surrogate_fault,
    surrogate_line,
    to_json,
    walk_forward_lines,
)
from mamba2.train.checkpoint import load_model, require_same_data
from mamba2.train.device import choose_device
from mamba2.train.records import data_digest
from mamba2.train.runs import find_checkpoint, recorded_files


class Outcome(NamedTuple):
    """What an evaluation found."""

    kind: str
    """'evaluation', 'walk-forward' or 'surrogate'."""
    lines: tuple[str, ...]
    """For a person, at most 80 columns wide."""
    values: Any
    """For JSON."""
    fault: str | None
    """Why the results are not to be trusted, in one line."""
    stretch: Stretch | None = None
    """Some bars of those that were judged."""


def evaluate_run(run: Path, files: Sequence[Path], *, contract: str | None = None, device: str | None) -> Outcome:
    """Judges the run's model on the files, or on those it was trained on, after the time that its training used.

    Args:
        run: folder of a run, or a checkpoint.
        files: to judge; those of the run when there are none.
        contract: of these files, as in `DataConfig`; that of the training when not given.
        device: that of the training when not given.

    Raises:
        Mamba2Error: no model, no files, or nothing to judge.
    """
    checkpoint = find_checkpoint(run)
    model, config = load_model(checkpoint)
    model.to(choose_device(device or config.train.device))
    judged_files, learned_files = _files(run, files), recorded_files(run)
    other = _of_contract(config, contract).data
    learned = make_tracks(load_bars(learned_files or judged_files), config.data if learned_files else other)
    judged = make_tracks(load_bars(judged_files), other)
    require_interval("evaluate", judged.market.series[0].interval, learned.market.series[0].interval)
    trained = split(learned, config.data)
    require_same_data(checkpoint, data_digest(trained))  # else bars that were learned from would be judged
    fold = held_back(learned, trained)
    found = report(observe(model, judged, learned, fold, config), config, synthetic=are_synthetic(judged_files))
    stretch = forecast_stretch(model, judged.contracts, fold.start)
    return Outcome("evaluation", tuple(evaluation_lines(found)), to_json(found), leak_fault(found), stretch)


def walk_forward_run(
    run: Path, files: Sequence[Path], *, contract: str | None = None, folds: int, embargo: int, device: str | None
) -> Outcome:
    """Trains the run's config anew for each fold; see `walk_forward`.

    Raises:
        Mamba2Error: no model, no files, or too few bars.
    """
    config, files = _of_contract(_config(run, device), contract), _files(run, files)
    tracks = make_tracks(load_bars(files), config.data)
    found = walk_forward(tracks, config, folds=folds, embargo=embargo, synthetic=are_synthetic(files))
    return Outcome("walk-forward", tuple(walk_forward_lines(found)), to_json(found), leak_fault(found.pooled))


def control_run(
    run: Path, files: Sequence[Path], *, contract: str | None = None, seed: int, device: str | None
) -> Outcome:
    """Trains the run's config anew on bars in random order; see `surrogate_control`.

    Raises:
        Mamba2Error: no model, no files, or too few bars.
    """
    config = _of_contract(_config(run, device), contract)
    found = surrogate_control(load_bars(_files(run, files)), config, seed=seed)
    lines = (*evaluation_lines(found.evaluation), "", surrogate_line(found))
    return Outcome("surrogate", lines, to_json(found), surrogate_fault(found))


def _config(run: Path, device: str | None) -> RunConfig:
    _, config = load_model(find_checkpoint(run))
    return config if device is None else replace(config, train=replace(config.train, device=device))


def _of_contract(config: RunConfig, contract: str | None) -> RunConfig:
    return config if contract is None else replace(config, data=replace(config.data, contract=contract))


def _files(run: Path, files: Sequence[Path]) -> Sequence[Path]:
    """The files given, or those that the run was trained on."""
    found = files or recorded_files(run)
    if not found:
        raise DataError(
            f"{run}: the files it was trained on must be known; no files.json is there. Name the DBN files."
        )
    return found
