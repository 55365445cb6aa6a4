"""What commands leave for a person: `report.html`, and beside it the same for programs in `report.json`."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mamba2.errors import ConfigError

if TYPE_CHECKING:
    from mamba2.evaluation.run import Outcome


def leave(page: Path, write: Callable[[Path], None]) -> None:
    """Writes a page and says where, or why not: what it is about is done, and does not fail for its page."""
    try:
        write(page)
    except Exception as error:
        typer.echo(f"no page {page}: {type(error).__name__}: {error}", err=True)
    else:
        typer.echo(f"page: {page}")


def write_values(path: Path, values: Any) -> None:
    """Plain values as JSON.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: must be a file that can be written; {error}.") from error


def leave_evaluation_page(folder: Path, outcome: "Outcome") -> None:
    """The page and the values of an evaluation in a folder of their own, such as RUN/evaluation."""

    def write(page: Path) -> None:
        folder.mkdir(exist_ok=True)
        write_values(folder / "report.json", outcome.values)
        write_evaluation_page(page, outcome)

    leave(folder / "report.html", write)


def write_evaluation_page(page: Path, outcome: "Outcome") -> None:
    """The page of an evaluation."""
    from mamba2.report.evaluation_page import evaluation_page
    from mamba2.report.page import write_page

    stretch = None if outcome.stretch is None else outcome.stretch._asdict()
    write_page(page, evaluation_page(outcome.kind, outcome.values, outcome.fault, stretch))


def write_verify_page(page: Path, target: str, verdicts: list[dict[str, Any]]) -> None:
    """The page of verdicts."""
    from mamba2.report.page import write_page
    from mamba2.report.verify_page import verify_page

    write_page(page, verify_page(target, verdicts))
    typer.echo(f"page: {page}")


def leave_train_page(out: Path, device: str, fault: str | None = None) -> None:
    """The page of a run that finished, was stopped or failed on a device; of several processes the first writes it."""
    if os.environ.get("RANK", "0") == "0":
        leave(out / "report.html", lambda page: _write_train_page(page, device, fault))


def _write_train_page(page: Path, name: str, fault: str | None) -> None:
    from mamba2.config import RunConfig
    from mamba2.report.model_flow import forecaster_flow
    from mamba2.report.page import write_page
    from mamba2.report.train_page import Seen, train_page
    from mamba2.train.device import choose_device, device_name, peak_memory
    from mamba2.train.distributed import own_device
    from mamba2.train.records import read_metrics, run_report

    out = page.parent
    config = RunConfig.load(out / "config.toml")
    device = choose_device(own_device(name))
    report = run_report(out, config, fault) | {"device": device_name(device), "peak_memory": peak_memory(device)}
    write_values(out / "report.json", report)
    steps = [line for line in read_metrics(out) if line["kind"] == "step"]
    seen = Seen(
        flow=forecaster_flow(config, min(config.train.batch, report["data"]["train_sequences"])),
        settings=config.to_toml(),
        losses=[line["loss"] for line in steps],
        norms=[line["gradient_norm"] for line in steps],
    )
    write_page(page, train_page(report, seen))
