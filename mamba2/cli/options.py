"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[
    list[Path],
    typer.Argument(help="Databento DBN files of OHLCV bars, or a folder of mamba2 prepare.", show_default=False),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file; sections [model], [data], [train].")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]
Symbol = Annotated[str | None, typer.Option(help="Take this contract.")]
Front = Annotated[bool, typer.Option("--front", help="Take the front contract of each session.")]
AllContracts = Annotated[bool, typer.Option("--all", help="Take all outright contracts.")]


def one_contract(symbol: str | None, front: bool, all_: bool) -> str | None:
    """The contract that is asked for as a config names it; None where none of the three options is given."""
    chosen = [name for name in (symbol, "front" if front else None, "all" if all_ else None) if name is not None]
    if len(chosen) > 1:
        raise typer.BadParameter("--symbol, --front and --all exclude one another.")
    return chosen[0] if chosen else None
