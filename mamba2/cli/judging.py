"""How good it is, and whether it is right: evaluate, verify."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mamba2.cli.options import AllContracts, Device, Front, Symbol, one_contract
from mamba2.errors import ConfigError, DataError


class Control(StrEnum):
    """Evaluations that train anew."""

    SURROGATE = "surrogate"


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a checkpoint.", show_default=False)],
    files: Annotated[list[Path] | None, typer.Argument(help="DBN files; those of the run when not given.")] = None,
    symbol: Symbol = None,
    front: Front = False,
    all_: AllContracts = False,
    json: Annotated[Path | None, typer.Option("--json", help="Write the results to this file too.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the page to this file, not into the run.")] = None,
    control: Annotated[Control | None, typer.Option(help="Train anew on bars in random order.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, help="Train anew for so many walk-forward folds.")] = None,
    embargo: Annotated[int, typer.Option(min=0, help="Bars left out before each fold, beside the purge.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the random order.")] = 0,
    device: Device = None,
) -> None:
    """Judges a trained forecaster next to forecasts that cost nothing; exit status 1 if it seems to know the future.

    Only bars after those of the training are judged, each segment from its start, as live; of the contract that the
    run was trained on, if no other is named. A page and its values, report.html and report.json, are left in
    RUN/evaluation, with --folds in RUN/walk-forward, with --control in RUN/surrogate.

    Example: mamba2 evaluate runs/first later.dbn.zst --json evaluation.json
    """
    contract = one_contract(symbol, front, all_)
    if control is not None and folds is not None:
        raise typer.BadParameter("--control and --folds exclude one another.")
    if embargo and folds is None:
        raise typer.BadParameter("--embargo is of --folds.")
    if seed and control is None:
        raise typer.BadParameter("--seed is of --control.")
    from mamba2.cli.pages import leave_evaluation_page, write_evaluation_page, write_values
    from mamba2.evaluation.run import control_run, evaluate_run, walk_forward_run
    from mamba2.train.runs import home

    if control is not None:
        outcome = control_run(run, files or [], contract=contract, seed=seed, device=device)
    elif folds is not None:
        outcome = walk_forward_run(run, files or [], contract=contract, folds=folds, embargo=embargo, device=device)
    else:
        outcome = evaluate_run(run, files or [], contract=contract, device=device)
    for line in outcome.lines:
        typer.echo(line)
    if report is not None:
        write_evaluation_page(report, outcome)
    elif (folder := home(run)) is not None:
        leave_evaluation_page(folder / outcome.kind, outcome)
    if json is not None:
        write_values(json, outcome.values)
    if outcome.fault is not None:
        raise DataError(outcome.fault)


def verify(
    target: Annotated[str, typer.Argument(help="MODULE:NAME, `ours`, one of ours such as `ours.block`, an adapter.")],
    json: Annotated[Path | None, typer.Option("--json", help="Write the verdicts to this file too.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page to this file too.")] = None,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Cases to draw for each law, a third for blocks; 100, or 40 where there are several to judge.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[list[str] | None, typer.Option(help="Only this level: scan, conv, block or model.")] = None,
) -> None:
    """Judges an implementation of Mamba-2 by the laws; exit status 1 if one that it claims is broken.

    Example: mamba2 verify mypackage.adapters:Mine --report verify.html
    """
    _verify(target, json, report, examples, level or [])


def _verify(target: str, json: Path | None, report: Path | None, examples: int | None, levels: list[str]) -> None:
    import torch
    from rich.console import Console

    from mamba2.cli.pages import write_values, write_verify_page
    from mamba2.verify.runner import verify
    from mamba2.verify.table import show
    from mamba2.verify.targets import load_implementations

    chosen = {name: each for name, each in load_implementations(target).items() if not levels or each.level in levels}
    if not chosen:
        raise ConfigError(f"--level: must be a level that {target} has; got {', '.join(levels)}.")
    torch.set_num_threads(1)  # the tensors of a case are too small to share
    many = len(chosen) > 1
    drawn = examples or (40 if many else 100)
    verdicts = show(verify(chosen, examples=drawn), Console(soft_wrap=True), many=many)
    values = [each.as_json() for each in verdicts]
    if json is not None:
        write_values(json, values)
    if report is not None:
        write_verify_page(report, target, values)
    if any(each.outcome == "broken" for each in verdicts):
        raise typer.Exit(1)
