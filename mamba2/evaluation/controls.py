"""Controls that train anew: walk-forward folds, and the surrogate, in which there is nothing to be learned."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from mamba2.config import RunConfig
from mamba2.data.bars import Market
from mamba2.data.dataset import Dataset, Tracks, make_tracks, split
from mamba2.data.degraded import without_degraded
from mamba2.data.surrogate import surrogate_market
from mamba2.errors import DataError
from mamba2.evaluation.folds import expanding_folds, windows_before
from mamba2.evaluation.judge import Evaluation, held_back, observe, report
from mamba2.evaluation.metrics import pool
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import make_model
from mamba2.train.device import choose_device
from mamba2.train.loop import fit

SURROGATE_FLOOR = 0.999
"""Least MSE ratio on the surrogate to the better of zero and the train mean, as an order at random keeps a drift: what
lies below was not learned from the past."""


class WalkForward(NamedTuple):
    """The evaluation of each fold, and of all their bars together."""

    folds: tuple[Evaluation, ...]
    pooled: Evaluation


class SurrogateResult(NamedTuple):
    """What a model trained on bars in random order achieves on such bars."""

    evaluation: Evaluation
    ratio: float | None
    least: float
    """The smallest ratio that nothing is wrong with."""
    passed: bool


def train_anew(dataset: Dataset, config: RunConfig) -> Forecaster:
    """A model trained on the windows as the config says; its checkpoints are thrown away.

    Raises:
        TrainingError: a loss or a gradient is not finite.
    """
    torch.manual_seed(config.train.seed)
    model = make_model(config).to(choose_device(config.train.device))
    with tempfile.TemporaryDirectory(prefix="mamba2-") as folder:
        for _ in fit(model, dataset, config, Path(folder)):
            pass
    return model


def walk_forward(tracks: Tracks, config: RunConfig, *, folds: int, embargo: int, synthetic: bool) -> WalkForward:
    """Cuts time into folds + 1 parts; each but the first is judged by a model trained on all before it.

    Between training and judging lie window + horizon + embargo bars.

    Raises:
        DataError: there are too few bars for so many folds.
    """
    whole = split(tracks, replace(config.data, validation_fraction=0.0))
    purge = config.data.window + config.data.horizon + embargo
    observed, evaluations = [], []
    for number, fold in enumerate(expanding_folds(whole.train, folds), 1):
        train = windows_before(whole.train, fold.start, purge, tracks.market.series[0].interval)
        if len(train) == 0:
            raise DataError(
                f"walk-forward: fold {number} needs windows {purge} bars (window + horizon + embargo) before it; got "
                "none. Take fewer --folds, a smaller --embargo or more days."
            )
        nothing = train.subset(np.zeros(len(train), bool))
        model = train_anew(replace(whole, train=train, validation=nothing), config)
        observed.append(observe(model, tracks, tracks, fold, config, embargo=embargo))
        evaluations.append(report(observed[-1], config, synthetic=synthetic))
    together = {target: pool([each[target] for each in observed]) for target in config.data.targets}
    return WalkForward(tuple(evaluations), report(together, config, synthetic=synthetic))


def surrogate_control(market: Market, config: RunConfig, *, seed: int) -> SurrogateResult:
    """Puts the bars of each segment in random order, then computes features, trains and judges as the run did.

    Shuffling the targets alone would be blind: a feature that looks ahead looks at targets that no longer follow it.

    Raises:
        DataError: the run has no return target, or there are no bars to judge.
    """
    if "return" not in config.data.targets:
        raise DataError(
            f"surrogate: the run must forecast returns, which lose their order; its targets are {config.data.targets}. "
            "Train with the target 'return'."
        )
    if config.data.skip_degraded:
        market = without_degraded(market)  # before their bars are shuffled into other days
    tracks = make_tracks(surrogate_market(market, config.data.max_gap, seed), config.data)
    dataset = split(tracks, config.data)
    model = train_anew(dataset, config)
    evaluation = report(observe(model, tracks, tracks, held_back(tracks, dataset), config), config, synthetic=True)
    scores = next(each.scores for each in evaluation.targets if each.target == "return")
    ratio, drift = scores[0].mse_ratio.value, next(each.mse_ratio.value for each in scores if each.name == "train mean")
    least = SURROGATE_FLOOR * min(1.0, 1.0 if drift is None else drift)
    return SurrogateResult(evaluation, ratio, least, ratio is not None and ratio >= least)
