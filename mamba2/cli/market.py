"""Files of bars: bars, prepare, download."""

from pathlib import Path
from typing import Annotated

import typer

from mamba2.cli.options import Files
from mamba2.errors import DataError


def bars(
    files: Files,
    skip_degraded: Annotated[bool, typer.Option("--skip-degraded", help="Without days of flawed data.")] = False,
) -> None:
    """Shows which instruments the files hold, what each would contribute, and what is dropped and why.

    Days that `condition.json` beside the files does not call available are listed.

    Example: mamba2 bars day1.dbn.zst
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from mamba2.data.bars import load_bars
    from mamba2.data.degraded import degraded_days, without_degraded
    from mamba2.data.selection import Selection, describe, select

    market, problem = load_bars(files), None
    days = degraded_days(market)
    if skip_degraded:
        market = without_degraded(market)
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
    for day in days:
        left_out = ", left out" if skip_degraded else ", used without --skip-degraded"
        console.print(f"{day.day}: {day.condition}, {day.bars:,} bars{left_out}", highlight=False)
    console.print(f"{market.messages:,} records in {market.files} files. Not used with --front:", highlight=False)
    for each in market.dropped + selection.dropped:
        console.print(f"  {each.symbol}: {each.bars:,} bars {each.why}", highlight=False)
    if problem is not None:
        raise problem


def prepare(
    files: Annotated[list[Path], typer.Argument(help="Databento DBN files of OHLCV bars.", show_default=False)],
    out: Annotated[Path, typer.Option(help="A new folder for the bars.", show_default=False)],
) -> None:
    """Checks files of any size and puts their bars in a folder, which every command takes in place of the files.

    Training reads it without loading it. If it is stopped, the same command goes on with the next file.

    Example: mamba2 prepare *.dbn.zst --out bars
    """
    from mamba2.data.bars import load_bars
    from mamba2.data.preparing import prepare_folder

    for each in prepare_folder(files, out):
        typer.echo(f"{each.path}: {each.records:,} records{'' if each.is_new else ', read before'}")
    market = load_bars([out])
    bars = sum(map(len, market.series))
    repeated = f", {market.messages - bars:,} of them twice" if bars < market.messages else ""
    typer.echo(f"{out}: {bars:,} bars of {len(market.series)} instruments out of {market.messages:,} records{repeated}")


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
