"""A trained model at work and in other libraries' layouts: live, convert."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mamba2.cli.options import Device
from mamba2.errors import CheckpointError


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
    from mamba2.train.runs import find_checkpoint, trained_interval

    model, config = load_model(find_checkpoint(run))
    model.to(choose_device(device or config.train.device))
    interval = trained_interval(run)
    if symbols is None:
        replay_session(model, config, files or [], typer.echo, state=state, trained_interval=interval)
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
        trained_interval=interval,
    )


class Layout(StrEnum):
    """Whose folders of a language model can be written."""

    TRANSFORMERS = "transformers"
    MAMBA_SSM = "mamba_ssm"
    MAMBA2 = "mamba2"


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


def _require_new(folder: Path, otherwise: str) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CheckpointError(f"{folder}: must be a new or empty folder, {otherwise}")
