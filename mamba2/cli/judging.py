"""How good it is, and whether it is right: evaluate, verify."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mamba2.cli.options import Device
from mamba2.errors import ConfigError, DataError


class Control(StrEnum):
    """Evaluations that train anew."""

    SURROGATE = "surrogate"


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a checkpoint.", show_default=False)],
    files: Annotated[list[Path] | None, typer.Argument(help="DBN files; those of the run when not given.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the results to this file too.")] = None,
    control: Annotated[Control | None, typer.Option(help="Train anew on bars in random order.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, help="Train anew for so many walk-forward folds.")] = None,
    embargo: Annotated[int, typer.Option(min=0, help="Bars left out before each fold, beside the purge.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the random order.")] = 0,
    device: Device = None,
) -> None:
    """Judges a trained forecaster next to forecasts that cost nothing; exit status 1 if it seems to know the future.

    Only bars after those of the training are judged, each segment from its start, as live.

    Example: mamba2 evaluate runs/first later.dbn.zst --json evaluation.json
    """
    if control is not None and folds is not None:
        raise typer.BadParameter("--control and --folds exclude one another.")
    from json import dumps

    from mamba2.evaluation.run import control_run, evaluate_run, walk_forward_run

    if control is not None:
        outcome = control_run(run, files or [], seed=seed, device=device)
    elif folds is not None:
        outcome = walk_forward_run(run, files or [], folds=folds, embargo=embargo, device=device)
    else:
        outcome = evaluate_run(run, files or [], device=device)
    for line in outcome.lines:
        typer.echo(line)
    if json is not None:
        json.write_text(dumps(outcome.values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if outcome.fault is not None:
        raise DataError(outcome.fault)


def verify(
    target: Annotated[str, typer.Argument(help="MODULE:NAME, `ours`, one of ours such as `ours.block`, an adapter.")],
    json: Annotated[Path | None, typer.Option("--json", help="Write the verdicts to this file too.")] = None,
    examples: Annotated[int, typer.Option(min=1, help="Cases to draw for each law; a third for blocks.")] = 100,
    level: Annotated[list[str] | None, typer.Option(help="Only this level: scan, conv, block or model.")] = None,
) -> None:
    """Judges an implementation of Mamba-2 by the laws; exit status 1 if one that it claims is broken.

    Example: mamba2 verify mypackage.adapters:Mine
    """
    _verify(target, json, examples, level or [])


def _verify(target: str, json: Path | None, examples: int, levels: list[str]) -> None:
    from json import dumps

    import torch
    from rich.console import Console

    from mamba2.verify.runner import verify
    from mamba2.verify.table import show
    from mamba2.verify.targets import load_implementations

    chosen = {name: each for name, each in load_implementations(target).items() if not levels or each.level in levels}
    if not chosen:
        raise ConfigError(f"--level: must be a level that {target} has; got {', '.join(levels)}.")
    torch.set_num_threads(1)  # the tensors of a case are too small to share
    verdicts = show(verify(chosen, examples=examples), Console(soft_wrap=True), many=len(chosen) > 1)
    if json is not None:
        json.write_text(dumps([each.as_json() for each in verdicts], indent=2), encoding="utf-8")
    if any(each.outcome == "broken" for each in verdicts):
        raise typer.Exit(1)
