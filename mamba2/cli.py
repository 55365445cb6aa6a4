"""What can be typed: thin commands, which import what they need when they run, so that --help is quick."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mamba2.config import DataConfig, RunConfig, TrainConfig
from mamba2.errors import CheckpointError, ConfigError, DataError

Section = TypeVar("Section", DataConfig, TrainConfig)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Mamba-2 on market bars: training, prefill and live inference are one function.",
    epilog="Begin with: mamba2 smoke. Every COMMAND --help has an example. Exit status: 0 for success, 1 for an error, "
    "which is one line, 2 for wrong usage.",
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
    typer.echo(f"page: {out / 'report.html'}")
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
    accumulate: Annotated[int | None, typer.Option(min=1, help="Parts that a batch is run in, to save memory.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bf16.", show_default=False)] = None,
    carry_state: Annotated[bool, typer.Option("--carry-state", help="Windows go on from those before them.")] = False,
    save_every: Annotated[int | None, typer.Option(min=1, help="Steps from checkpoint to checkpoint.")] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="Newest checkpoints to keep, beside the best.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")] = False,
    device: Device = None,
) -> None:
    """Trains a forecaster on files of bars; a checkpoint follows each epoch, and where SIGINT or SIGTERM stops it.

    Example: mamba2 train day1.dbn.zst day2.dbn.zst --symbol 6EH4 --out runs/first
    """
    chosen = [name for name in (symbol, "front" if front else None, "all" if all_ else None) if name is not None]
    if len(chosen) > 1:
        raise typer.BadParameter("--symbol, --front and --all exclude one another.")
    known = out / "config.toml" if resume and config is None else config
    run = RunConfig.load(known) if known and (known == config or known.is_file()) else RunConfig()
    data = {
        "window": window,
        "stride": stride,
        "warm_up": warm_up,
        "contract": chosen[0] if chosen else None,
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

    from mamba2.train.show import train as train_and_show

    status = train_and_show(files, run, out, resume=resume)
    if status:
        raise typer.Exit(status)


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="A folder of runs.", show_default=False)]) -> None:
    """Lists the runs under a folder: how far they came, how good they are, in which settings they differ.

    Example: mamba2 runs runs
    """
    from rich.console import Console

    from mamba2.train.show import runs_table

    Console().print(runs_table(folder), soft_wrap=False)


@app.command()
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


@app.command()
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


class Control(StrEnum):
    """Evaluations that train anew."""

    SURROGATE = "surrogate"


@app.command()
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


@app.command()
def live(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a checkpoint.", show_default=False)],
    files: Annotated[list[Path] | None, typer.Argument(help="DBN files to replay.")] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Replay the files, bar by bar.")] = False,
    from_feed: Annotated[bool, typer.Option("--live", help="Take bars from databento.Live.")] = False,
    state: Annotated[Path | None, typer.Option(help="Folder of the state: go on from it, save it at the end.")] = None,
    dataset: Annotated[str, typer.Option(help="Of the feed.")] = "GLBX.MDP3",
    symbols: Annotated[str | None, typer.Option(help="What to subscribe to, such as 6E.FUT.")] = None,
    schema: Annotated[str, typer.Option(help="ohlcv-1s, -1m, -1h or -1d.")] = "ohlcv-1m",
    reconnects: Annotated[int, typer.Option(min=0, help="Tries in a row to connect again.")] = 10,
    pause: Annotated[float, typer.Option(min=0, help="Seconds before each.")] = 5.0,
    gateway: Annotated[str | None, typer.Option(hidden=True, help="HOST:PORT instead of Databento's.")] = None,
    device: Device = None,
) -> None:
    """Forecasts bar by bar: one line of JSON after each completed bar of the run's contract.

    The feed's key is taken from DATABENTO_API_KEY. Ctrl-C ends the feed and saves the state.

    Example: mamba2 live runs/first --replay 2024-01-08.dbn.zst
    """
    if replay == from_feed or bool(files) != replay or (symbols is not None) != from_feed:
        raise typer.BadParameter("either --replay and FILEs, or --live and --symbols.")
    from signal import SIGTERM, default_int_handler, signal

    from mamba2.live.session import feed_session, replay_session, subscribe_to
    from mamba2.live.stream import Gateway
    from mamba2.train.checkpoint import load_model
    from mamba2.train.device import choose_device
    from mamba2.train.runs import find_checkpoint

    model, config = load_model(find_checkpoint(run))
    model.to(choose_device(device or config.train.device))
    if symbols is None:
        replay_session(model, config, files or [], typer.echo, state=state)
        return
    host, _, port = gateway.partition(":") if gateway else ("", "", "")
    signal(SIGTERM, default_int_handler)  # so that a stopped service saves its state, as Ctrl-C does
    feed_session(
        model,
        config,
        subscribe_to(dataset, symbols, schema),
        typer.echo,
        state=state,
        gateway=Gateway(host, int(port)) if gateway else Gateway(),
        reconnects=reconnects,
        pause=pause,
    )


@app.command()
def download(
    symbols: Annotated[str, typer.Argument(help="Such as 6E.FUT, ES.v.0 or 6EH4,6EM4.", show_default=False)],
    start: Annotated[str, typer.Option(help="First day or time, UTC.", show_default=False)],
    end: Annotated[str, typer.Option(help="Day or time to end before, UTC.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder of the file.")] = Path(),
    dataset: Annotated[str, typer.Option(help="At Databento.")] = "GLBX.MDP3",
    schema: Annotated[str, typer.Option(help="ohlcv-1s, -1m, -1h or -1d.")] = "ohlcv-1m",
    daily: Annotated[bool, typer.Option("--daily", help="A file for each UTC day; goes on where it stopped.")] = False,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Dollars that may be spent.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Buy whatever it costs.")] = False,
    gateway: Annotated[str | None, typer.Option(hidden=True, help="URL instead of Databento's.")] = None,
) -> None:
    """Downloads bars: says what they cost first, and leaves files that are whole and checked, or none.

    Files that are there and whole are not bought again. The key is taken from DATABENTO_API_KEY.

    Example: mamba2 download 6E.FUT --start 2024-01-02 --end 2024-01-06 --max-cost 1
    """
    from mamba2.data.api import api_key
    from mamba2.data.download import Request, is_there, make_client, quote
    from mamba2.data.download import download as fetch

    request = Request(dataset, symbols, schema, start, end)
    parts = request.days() if daily else (request,)
    client = make_client(api_key(), gateway=gateway)
    wanted = [(part, quote(client, part)) for part in parts]
    missing = [
        (part, price) for part, price in wanted if price.records and not is_there(out / part.name, price.records)
    ]
    records, dollars = sum(price.records for _, price in missing), sum(price.dollars for _, price in missing)
    typer.echo(
        f"{symbols} ({request.stype_in}), {schema}: {records:,} records in {len(missing)} files for {dollars:.2f} USD; "
        f"{sum(price.records > 0 for _, price in wanted) - len(missing)} files are there"
    )
    if missing and not yes:
        _require_consent(dollars, max_cost)
    for part, price in missing:
        fetch(client, part, out / part.name, price.records)
        typer.echo(str(out / part.name))


def _require_consent(dollars: float, max_cost: float | None) -> None:
    """The cost is within the limit; without one, whoever sits at the terminal says yes."""
    import sys

    if max_cost is not None and dollars > max_cost:
        raise DataError(
            f"download: the cost must be at most --max-cost {max_cost:.2f} USD; it is {dollars:.2f}. Ask for less, or "
            "raise the limit."
        )
    if max_cost is None and not (sys.stdin.isatty() and typer.confirm("Buy?")):
        raise DataError(f"download: {dollars:.2f} USD must be agreed to; they were not. Add --max-cost or --yes.")


def _override(section: Section, values: dict[str, Any]) -> Section:
    """The section with those values that are given."""
    return replace(section, **{name: value for name, value in values.items() if value is not None})


def _require_new(folder: Path, otherwise: str) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CheckpointError(f"{folder}: must be a new or empty folder, {otherwise}")
