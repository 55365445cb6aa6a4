"""From bars to a trained model: smoke, check, train, runs, replay."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mamba2.cli.options import AllContracts, ConfigFile, Device, Files, Front, Symbol, one_contract
from mamba2.config import DataConfig, RunConfig, TrainConfig

Section = TypeVar("Section", DataConfig, TrainConfig)


def smoke(
    files: Annotated[list[Path] | None, typer.Argument(help="DBN files; made here when not given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report and the checkpoints.")] = Path("runs/smoke"),
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training windows.")] = 3,
) -> None:
    """Bars to a trained model in one go, with a checklist; exit status 1 if a check fails.

    Example: mamba2 smoke --out runs/smoke
    """
    from mamba2.smoke import run_smoke

    report = run_smoke(files or [], out, device=device, epochs=epochs, say=typer.echo)
    typer.echo(f"page: {out / 'report.html'}")
    typer.echo(f"{'passed' if report['passed'] else 'FAILED'}: {out / 'report.json'}")
    if not report["passed"]:
        raise typer.Exit(1)


def check(config: ConfigFile = None) -> None:
    """Takes one whole training step on fake tensors: no data, no GPU; names the function and axis that fail.

    Example: mamba2 check --config run.toml
    """
    run = RunConfig.load(config) if config else RunConfig()

    import torch

    from mamba2.model.choice import why_never_fused
    from mamba2.train.dry_run import dry_run

    result = dry_run(run)
    typer.echo(
        f"ok: one training step on {result.batch} sequences of {result.time} bars with {result.features} features "
        f"through {result.parameters:,} parameters."
    )
    is_autocast, device = run.train.precision != "float32", run.train.device.partition(":")[0]
    why = why_never_fused(device=device, dtype=torch.float32, is_autocast=is_autocast)
    typer.echo("blocks run in the fast form." if why is None else f"blocks run in the composed form: {why}.")


def train(
    files: Files,
    out: Annotated[Path, typer.Option(help="A new folder for config and checkpoints.")],
    config: ConfigFile = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training windows.")] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Bars in a training sequence.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Bars between window starts.")] = None,
    warm_up: Annotated[int | None, typer.Option(min=0, help="First bars of a contract without windows.")] = None,
    symbol: Symbol = None,
    front: Front = False,
    all_: AllContracts = False,
    skip_degraded: Annotated[bool, typer.Option("--skip-degraded", help="Without days of flawed data.")] = False,
    no_validation: Annotated[bool, typer.Option("--no-validation", help="Train on all windows.")] = False,
    accumulate: Annotated[int | None, typer.Option(min=1, help="Parts that a batch is run in, to save memory.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bf16.", show_default=False)] = None,
    carry_state: Annotated[bool, typer.Option("--carry-state", help="Windows go on from those before them.")] = False,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps from checkpoint to checkpoint.")] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Newest checkpoints to keep, beside the best.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write OUT/tensorboard too (an extra).")] = False,
    device: Device = None,
) -> None:
    """Trains a forecaster on files of bars; a checkpoint follows each epoch, and where SIGINT or SIGTERM stops it.

    Example: mamba2 train day1.dbn.zst day2.dbn.zst --symbol 6EH4 --out runs/first
    """
    contract = one_contract(symbol, front, all_)
    known = out / "config.toml" if resume and config is None else config
    run = RunConfig.load(known) if known and (known == config or known.is_file()) else RunConfig()
    data = {
        "window": window,
        "stride": stride,
        "warm_up": warm_up,
        "contract": contract,
        "skip_degraded": skip_degraded or None,
        "validation_fraction": 0.0 if no_validation else None,
    }
    train = {
        "epochs": epochs,
        "accumulate": accumulate,
        "precision": precision,
        "carry_state": carry_state or None,
        "save_every": save_every,
        "keep": keep,
        "device": device,
    }
    run = replace(run, data=_override(run.data, data), train=_override(run.train, train))

    from mamba2.cli.pages import leave_train_page
    from mamba2.errors import TrainingError
    from mamba2.train.show import train as train_and_show

    try:
        status = train_and_show(files, run, out, resume=resume, tensorboard=tensorboard)
    except TrainingError as error:
        leave_train_page(out, run.train.device, fault=error.headline)
        raise
    leave_train_page(out, run.train.device)
    if status:
        raise typer.Exit(status)


def _override(section: Section, values: dict[str, Any]) -> Section:
    """The section with those values that are given."""
    return replace(section, **{name: value for name, value in values.items() if value is not None})


def runs(folder: Annotated[Path, typer.Argument(help="A folder of runs.", show_default=False)]) -> None:
    """Lists the runs under a folder: how far they came, how good they are, in which settings they differ.

    Example: mamba2 runs runs
    """
    from rich.console import Console

    from mamba2.train.show import runs_table

    Console(markup=False).print(runs_table(folder), soft_wrap=False)


def replay(folder: Annotated[Path, typer.Argument(help="RUN/failed-batch.", show_default=False)]) -> None:
    """Takes a step that failed again, and names the first module whose output is not finite; exit status 1 if one is.

    Example: mamba2 replay runs/first/failed-batch
    """
    from mamba2.train.failure import replay as take_again

    result = take_again(folder)
    typer.echo(f"failed: {result.failed}\nagain:  {result.again or f'all is finite, loss {result.loss:.4f}'}")
    if result.first:
        typer.echo(f"first:  {result.first}")
    if result.again:
        raise typer.Exit(1)
