"""Files of bars from databento.Historical: the cost first, then a file that is whole and checked, or none."""

import json
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from mamba2.data.api import infer_stype
from mamba2.data.dbn import count_records
from mamba2.errors import ConfigError, DataError

SCHEMAS = ("ohlcv-1s", "ohlcv-1m", "ohlcv-1h", "ohlcv-1d")


class Request(NamedTuple):
    """What to download; the end is exclusive, times are UTC."""

    dataset: str
    symbols: str
    schema: str
    start: str
    end: str

    @property
    def stype_in(self) -> str:
        """The kind of symbols, by their spelling; the API would take 6E.FUT for a raw symbol, and find none."""
        return infer_stype(self.symbols)

    @property
    def name(self) -> str:
        """A file name that says what is inside."""
        symbols = self.symbols.replace(",", "_")
        days = f"{self.start}-{self.end}".replace(":", "")
        return f"{self.dataset.lower().replace('.', '-')}-{symbols}-{days}.{self.schema}.dbn.zst"

    def days(self) -> "tuple[Request, ...]":
        """One request for each UTC day, so that an interrupted download has whole files to go on from.

        Raises:
            ConfigError: start and end are not dates, or there is no day between them.
        """
        try:
            first, end = date.fromisoformat(self.start), date.fromisoformat(self.end)
        except ValueError as error:
            raise ConfigError(f"--daily: start and end must be dates; {error}. Write them as 2024-01-02.") from None
        if first >= end:
            raise ConfigError(
                f"--daily: the start must lie before the end; got {first} and {end}. The end is exclusive."
            )
        starts = [first + timedelta(days=number) for number in range((end - first).days)]
        return tuple(self._replace(start=str(day), end=str(day + timedelta(days=1))) for day in starts)


class Quote(NamedTuple):
    """What a request costs; overstated by the API where the range is not aligned to ten minutes."""

    dollars: float
    records: int


def make_client(key: str, *, gateway: str | None = None) -> Any:
    """A databento.Historical; a gateway other than Databento's is spoken to as its URL says, http included."""
    from databento import Historical

    if gateway is None:
        return Historical(key)
    client = Historical(key, gateway=gateway)
    if gateway.startswith("http://"):  # which the client turns into https
        for api in (client.metadata, client.timeseries):
            api._base_url = api._base_url.replace("https://", "http://")
    return client


def quote(client: Any, request: Request) -> Quote:
    """Cost and number of records of a request, without buying it.

    Raises:
        DataError: the API refuses the request or cannot be reached.
        ConfigError: the schema is not one of bars, or the symbols are not of one kind.
    """
    if request.schema not in SCHEMAS:
        raise ConfigError(f"--schema: must be one of {', '.join(SCHEMAS)}; got {request.schema}. Choose one of them.")
    dollars = _ask(client, request, client.metadata.get_cost, _range(request))
    records = _ask(client, request, client.metadata.get_record_count, _range(request))
    return Quote(float(dollars), int(records))


def is_there(path: Path, records: int) -> bool:
    """Whether the file was downloaded before: it is read whole, and has as many records.

    Raises:
        DataError: there is a file, and it is not that one.
    """
    if not path.exists():
        return False
    found = count_records(path)
    if found != records:
        raise DataError(
            f"{path}: must hold the {records:,} records asked for, or not exist; it has {found:,}. Move it away."
        )
    return True


def download(client: Any, request: Request, path: Path, records: int) -> None:
    """Fetches into a temporary file, decodes and counts all of it, and only then gives it its name.

    Days that Databento marks as degraded are listed beside it, as `<name>.condition.json`. What an interrupted
    download left is fetched again.

    Raises:
        DataError: the download fails or is not whole, or the folder cannot be written; then no file is left.
    """
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        # Asked first: what comes after is paid for, and no question may fail any more.
        degraded = [day for day in _conditions(client, request) if day.get("condition") != "available"]
        with warnings.catch_warnings(record=True):  # degraded days come as warnings, and below by name
            warnings.simplefilter("always")
            _ask(client, request, client.timeseries.get_range, {**_range(request), "path": str(beside)})
        found = count_records(beside)
        if found != records:
            raise DataError(
                f"{path}: the download must have {records:,} records, as announced; got {found:,}. Try again; align "
                "the range to ten minutes, without which the announcement may be too high."
            )
        if degraded:
            path.with_name(f"{path.name}.condition.json").write_text(json.dumps(degraded, indent=2), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise DataError(f"{path}: must be writable; {error.strerror}. Check the folder and its permissions.") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _range(request: Request) -> dict[str, str]:
    return {
        "dataset": request.dataset,
        "symbols": request.symbols,
        "schema": request.schema,
        "stype_in": request.stype_in,
        "start": request.start,
        "end": request.end,
    }


def _conditions(client: Any, request: Request) -> list[dict[str, Any]]:
    """The state of each day; the end of the API's range is inclusive."""
    span = {"dataset": request.dataset, "start_date": request.start[:10], "end_date": request.end[:10]}
    days: list[dict[str, Any]] = _ask(client, request, client.metadata.get_dataset_condition, span)
    return days


def _ask(client: Any, request: Request, call: Callable[..., Any], arguments: dict[str, str]) -> Any:
    """One call of the API; its errors become ours, in one line and without the key."""
    from databento import BentoError
    from databento_dbn import DBNError
    from requests import RequestException

    try:
        return call(**arguments)
    except (BentoError, DBNError, RequestException, ValueError) as error:
        text = " ".join(str(error).replace(client.key, "****").split()).rstrip(".")
    # Raised here, and not above, where the cause would come along: it knows the key, and holds the file open.
    raise DataError(
        f"download {request.symbols} of {request.dataset}: the API must answer; {text}. "
        "Check key, dataset, symbols, range and network."
    )
