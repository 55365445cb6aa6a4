"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[list[Path], typer.Argument(help="Databento DBN files of OHLCV bars.", show_default=False)]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A TOML file; sections [model], [data], [train].")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.", show_default=False)]
