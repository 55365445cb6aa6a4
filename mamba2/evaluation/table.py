"""Evaluations as text of 80 columns and as plain values for JSON."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from mamba2.evaluation.controls import SurrogateResult, WalkForward
from mamba2.evaluation.judge import LEAK_BELOW, Evaluation, TargetReport
from mamba2.evaluation.metrics import Estimate, Score

_COLUMNS = "{:<14}{:>9}{:>8}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}"


def evaluation_lines(evaluation: Evaluation) -> Iterator[str]:
    """A table for each target, how wide the quantiles are, and the error by position."""
    marked = " (synthetic)" if evaluation.synthetic else ""
    yield f"bars from {evaluation.first} to {evaluation.last}{marked}"
    for each in evaluation.targets:
        yield ""
        yield from _target_lines(each)


def walk_forward_lines(result: WalkForward) -> Iterator[str]:
    """The MSE ratios of each fold from its first bar on, then all folds together."""
    for number, fold in enumerate(result.folds, 1):
        ratios = "  ".join(f"{each.target} {_pair(each.scores[0].mse_ratio)}" for each in fold.targets)
        yield f"fold {number}: {fold.first[:16]}Z  {ratios}"
    yield ""
    yield "all folds together"
    yield from evaluation_lines(result.pooled)


def surrogate_line(result: SurrogateResult) -> str:
    """Whether the control is passed."""
    outcome = "passed" if result.passed else "FAILED"
    return f"surrogate control {outcome}: MSE ratio {_text(result.ratio)}, {_text(result.least)} is the least allowed"


def surrogate_fault(result: SurrogateResult) -> str | None:
    """Why the control fails, if it does."""
    if result.passed:
        return None
    return (
        f"surrogate control: on bars in random order the MSE ratio must be at least {_text(result.least)}; got "
        f"{_text(result.ratio)}. Look for a feature that sees the future; with few bars it may be chance: try --seed."
    )


def leak_fault(evaluation: Evaluation) -> str | None:
    """The alarm, if there is reason for one."""
    for each in evaluation.targets:
        if each.suspected_leak:
            return (
                f"leak alarm: a return forecast on real bars must have an MSE ratio of at least {LEAK_BELOW}; got "
                f"{_text(each.scores[0].mse_ratio.value)}. Treat it as a leak until explained: run --control surrogate."
            )
    return None


def to_json(value: Any) -> Any:
    """Results as nested dicts, lists, texts and numbers; what is undefined is None."""
    if is_dataclass(value):
        return {each.name: to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: to_json(each) for name, each in value._asdict().items()}
    return [to_json(each) for each in value] if isinstance(value, tuple) else value


def _target_lines(found: TargetReport) -> Iterator[str]:
    yield f"{found.target}: {found.bars:,} bars, days: {found.days}; ratios to the {found.naive} forecast"
    names = ("MSE ratio", "± se", "MAE r.", "MASE", "hits", "IC", "± se", "rank IC")
    yield _COLUMNS.format("", *names)
    for each in found.scores:
        yield _row(each)
    yield f"The model is {found.verdict}."
    yield f"{'quantile':<20}{''.join(f'{each.level:>8g}' for each in found.coverage)}"
    yield f"{'outcomes not above':<20}{''.join(f'{_text(each.share.value, 3):>8}' for each in found.coverage)}"
    yield "MSE ratio by bars since the segment's start"
    for position in found.by_position:
        where = f"{position.first}-{position.end - 1}"
        yield f"  {where:<12}{_pair(position.mse_ratio):>18}{position.bars:>10,} bars"


def _row(each: Score) -> str:
    measures = (
        _text(each.mse_ratio.value),
        _text(each.mse_ratio.error),
        _text(each.mae_ratio.value),
        _text(each.mase.value),
        _text(each.direction.value, 3),
        _text(each.ic.value, 3),
        _text(each.ic.error, 3),
        _text(each.rank_ic.value, 3),
    )
    return _COLUMNS.format(each.name, *measures)


def _pair(found: Estimate) -> str:
    return f"{_text(found.value)} ± {_text(found.error)}"


def _text(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
