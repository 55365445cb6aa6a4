"""What can be typed: thin commands, which import what they need when they run, so that --help is quick."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mamba2.config import DataConfig, RunConfig, TrainConfig
from mamba2.errors import CheckpointError, DataError

if TYPE_CHECKING:
    from mamba2.train.loop import Epoch, Step

Section = TypeVar("Section", DataConfig, TrainConfig)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Mamba-2 on market bars: training, prefill and live inference are one function.",
)

Files = Annotated[list[Path], typer.Argument(help="Databento DBN files of OHLCV bars.", show_default=False)]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file; sections [model], [data], [train].")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]


@app.command()
def smoke(
    files: Annotated[list[Path] | None, typer.Argument(help="DBN files; made here when not given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report and the checkpoints.")] = Path("runs/smoke"),
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")] = "cpu",
    epochs: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Bars to a trained model in one go, with a checklist; exit status 1 if a check fails.

    Example: mamba2 smoke --out runs/smoke
    """
    from mamba2.smoke import run_smoke

    report = run_smoke(files or [], out, device=device, epochs=epochs, say=typer.echo)
    typer.echo(f"{'passed' if report['passed'] else 'FAILED'}: {out / 'report.json'}")
    if not report["passed"]:
        raise typer.Exit(1)


@app.command()
def train(
    files: Files,
    out: Annotated[Path, typer.Option(help="A new folder for config and checkpoints.")],
    config: ConfigFile = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    window: Annotated[int | None, typer.Option(min=1, help="Bars in a training sequence.")] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Bars between window starts.")] = None,
    warm_up: Annotated[int | None, typer.Option(min=0, help="First bars of a contract without windows.")] = None,
    symbol: Annotated[str | None, typer.Option(help="Take this contract.")] = None,
    front: Annotated[bool, typer.Option("--front", help="Take the front contract of each session.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Take all outright contracts.")] = False,
    no_validation: Annotated[bool, typer.Option("--no-validation", help="Train on all windows.")] = False,
    device: Device = None,
) -> None:
    """Trains a forecaster on files of bars; a checkpoint follows each epoch.

    Example: mamba2 train day1.dbn.zst day2.dbn.zst --symbol 6EH4 --out runs/first
    """
    chosen = [name for name in (symbol, "front" if front else None, "all" if all_ else None) if name is not None]
    if len(chosen) > 1:
        raise typer.BadParameter("--symbol, --front and --all exclude one another.")
    run = RunConfig.load(config) if config else RunConfig()
    data = {
        "window": window,
        "stride": stride,
        "warm_up": warm_up,
        "contract": chosen[0] if chosen else None,
        "validation_fraction": 0.0 if no_validation else None,
    }
    run = replace(run, data=_override(run.data, data), train=_override(run.train, {"epochs": epochs, "device": device}))
    _train(files, run, out)


@app.command()
def bars(files: Files) -> None:
    """Shows which instruments the files hold, what each would contribute, and what is dropped and why.

    Example: mamba2 bars day1.dbn.zst
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from mamba2.data.bars import load_bars
    from mamba2.data.selection import Selection, describe, select

    market, problem = load_bars(files), None
    try:
        selection = select(market, "front")
    except DataError as error:  # what the files hold is worth a table all the same
        selection, problem = Selection((), ()), error
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("instrument", "bars", "first (UTC)", "last (UTC)", "gaps", "front"):
        is_count = column in ("bars", "gaps", "front")
        # On a narrow terminal it is the instrument's name that gives way.
        width = {"instrument": None, "gaps": 4, "front": 6, "bars": 6}.get(column, 16)
        table.add_column(column, justify="right" if is_count else "left", no_wrap=True, min_width=width)
    for row in describe(market, selection, None):
        first, last = (time[:16].replace("T", " ") for time in (row.first, row.last))
        table.add_row(row.symbol, f"{row.bars:,}", first, last, str(row.gaps), f"{row.kept:,}")
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"{market.messages:,} records in {market.files} files. Not used with --front:", highlight=False)
    for each in market.dropped + selection.dropped:
        console.print(f"  {each.symbol}: {each.bars:,} bars {each.why}", highlight=False)
    if problem is not None:
        raise problem


class Layout(StrEnum):
    """Whose folders of a language model can be written."""

    TRANSFORMERS = "transformers"
    MAMBA_SSM = "mamba_ssm"
    MAMBA2 = "mamba2"


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="Folder of a language model, of any of the three kinds.")
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="A new folder.")],
    to: Annotated[Layout, typer.Option(help="Whose layout to write.", show_default=False)],
) -> None:
    """Writes a language model in the layout of another library, weights bit for bit; tokenizers are not copied.

    Example: mamba2 convert mamba2-130m-hf mamba2-130m --to mamba2
    """
    _require_new(target, "a model is never written over. Choose another DST.")

    from mamba2.model.interop import load_language_model, save_language_model

    model = load_language_model(source)
    save_language_model(target, model, to=to.value)
    typer.echo(
        f"{target} ({to.value}): {model.config.layers} layers, vocabulary {model.vocabulary:,}, "
        f"{sum(each.numel() for each in model.parameters()):,} parameters, {'tied' if model.tied else 'untied'} head"
    )


@app.command()
def check(config: ConfigFile = None) -> None:
    """Takes one whole training step on fake tensors: no data, no GPU; names the function and axis that fail.

    Example: mamba2 check --config run.toml
    """
    run = RunConfig.load(config) if config else RunConfig()

    from mamba2.train.dry_run import dry_run

    result = dry_run(run)
    typer.echo(
        f"ok: one training step on {result.batch} sequences of {result.time} bars with {result.features} features "
        f"through {result.parameters:,} parameters."
    )


def _override(section: Section, values: dict[str, Any]) -> Section:
    """The section with those values that are given."""
    return replace(section, **{name: value for name, value in values.items() if value is not None})


def _require_new(folder: Path, otherwise: str) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CheckpointError(f"{folder}: must be a new or empty folder, {otherwise}")


def _train(files: list[Path], run: RunConfig, out: Path) -> None:
    _require_new(out, "a run is never written over. Choose another --out.")

    import torch

    from mamba2.data.dataset import prepare
    from mamba2.train.checkpoint import make_model
    from mamba2.train.device import choose_device
    from mamba2.train.loop import fit

    device = choose_device(run.train.device)
    dataset = prepare(files, run.data)
    typer.echo(
        f"{dataset.bars:,} of {dataset.messages:,} bars, {dataset.sequences:,} windows: {len(dataset.train):,} to "
        f"train, {len(dataset.validation):,} to validate, {dataset.purged:,} purged between"
    )
    torch.manual_seed(run.train.seed)
    model = make_model(run).to(device)
    _show(fit(model, dataset, run, out / "checkpoints"))


def _show(progress: "Iterator[Step | Epoch]") -> None:
    """A bar on a terminal; elsewhere only the line of each epoch."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from mamba2.train.loop import Epoch

    console = Console(soft_wrap=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")
        for event in progress:
            if isinstance(event, Epoch):
                validation = "none" if event.validation_loss is None else f"{event.validation_loss:.4f}"
                line = f"epoch {event.epoch}  train loss {event.train_loss:.4f}  validation loss {validation}"
                console.print(f"{line}  {event.seconds:.1f} s  {event.checkpoint}", highlight=False)
            else:
                bar.update(task, completed=event.step, total=event.steps, description=f"loss {event.loss:.4f}")
