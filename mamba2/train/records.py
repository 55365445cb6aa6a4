"""What a run leaves beside its checkpoints: `config.toml`, `run.json` and `metrics.jsonl`; and how runs compare."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mamba2 import __version__
from mamba2.config import RunConfig
from mamba2.data.dataset import Dataset
from mamba2.errors import CheckpointError
from mamba2.model.files import write_whole
from mamba2.train.checkpoint import checkpoint_name, differing

METRICS = "metrics.jsonl"


def data_digest(dataset: Dataset) -> str:
    """SHA-256 of all that training sees of the data: the tracks, and which windows of them are for what."""
    digest = hashlib.sha256()
    parts = (dataset.train, dataset.validation)
    for track in dataset.train.tracks:
        digest.update(track.symbol.encode())
        for column in track[1:]:
            digest.update(f"{column.dtype}{column.shape}".encode())
            digest.update(np.ascontiguousarray(column).reshape(-1).view(np.uint8).data)  # no copy: it may be on disk
    for column in (column for part in parts for column in (part.track, part.start)):
        digest.update(f"{len(column)}".encode())
        digest.update(column.tobytes())
    return digest.hexdigest()


def write_run(out: Path, files: Sequence[Path], config: RunConfig, dataset: Dataset, parameters: int) -> None:
    """Writes the config as resolved, and with what and on which data the run was made.

    Raises:
        CheckpointError: a file cannot be written.
    """
    packages = {name: version(name) for name in ("torch", "numpy", "safetensors")}
    record = {
        "versions": {"python": platform.python_version(), "mamba2": __version__, **packages},
        "seed": config.train.seed,
        "data": {
            "digest": data_digest(dataset),
            "files": [path.name for path in files],
            "interval": dataset.interval,
            **_counts(dataset),
        },
        "parameters": parameters,
        "git": _git_state(),
    }
    write_whole(out / "config.toml", config.to_toml())
    write_whole(out / "run.json", json.dumps(record, indent=2) + "\n")


def _counts(dataset: Dataset) -> dict[str, int]:
    return {
        "messages": dataset.messages,
        "bars": dataset.bars,
        "sequences": dataset.sequences,
        "train_sequences": len(dataset.train),
        "validation_sequences": len(dataset.validation),
    }


def _git_state() -> dict[str, Any] | None:
    """Commit of the code that runs, and whether it has changes; None outside a repository or without git."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        return {"commit": commit, "changed": bool(_git("status", "--porcelain").strip())}
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", Path(__file__).parent, *arguments], capture_output=True, text=True, check=True
    ).stdout


def append_metrics(out: Path, values: Mapping[str, Any]) -> None:
    """Adds a line to `metrics.jsonl`.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        with (out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
    except OSError as error:
        raise CheckpointError(f"{out / METRICS}: cannot be written: {error}.") from error


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """All whole lines of `metrics.jsonl`; a process killed while it wrote leaves half of the last.

    Raises:
        CheckpointError: another line is damaged.
    """
    path, found = out / METRICS, list[dict[str, Any]]()
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if path.is_file() else []
    for number, line in enumerate(lines, 1):
        if line.endswith("\n"):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise CheckpointError(f"{path}: line {number} must be JSON; {error}. Take the line out.") from error
    return found


def rewind_metrics(out: Path, step: int) -> None:
    """Drops what `metrics.jsonl` holds of later steps, and of the end of an epoch at this one: it is told again.

    Raises:
        CheckpointError: it cannot be written.
    """
    last = {"step": step, "epoch": step - 1}
    lines = [line for line in read_metrics(out) if line["step"] <= last[line["kind"]]]
    write_whole(out / METRICS, "".join(json.dumps(line) + "\n" for line in lines))


def run_report(out: Path, config: RunConfig, fault: str | None) -> dict[str, Any]:
    """What became of the run in a folder, from its records.

    Args:
        out: holds `run.json` and `metrics.jsonl`.
        config: of the run.
        fault: the error that ended it.
    """
    run, lines = json.loads((out / "run.json").read_text(encoding="utf-8")), read_metrics(out)
    taken = [line for line in lines if line["kind"] == "step"]
    epochs = [
        {name: line[name] for name in ("epoch", "train_loss", "validation_loss", "seconds")}
        | {"checkpoint": checkpoint_name(line["step"], line["step"] // line["epoch"])}
        for line in lines
        if line["kind"] == "epoch"
    ]
    seconds, bars = sum(line["seconds"] for line in taken), sum(line["bars"] for line in taken)
    validated = [epoch for epoch in epochs if epoch["validation_loss"] is not None]
    is_done = len(epochs) == config.train.epochs
    return {
        "run": out.name,
        "outcome": "failed" if fault else "finished" if is_done else "stopped",
        "fault": fault,
        "step": taken[-1]["step"] if taken else 0,
        "steps": taken[-1]["steps"] if taken else 0,
        "of_epochs": config.train.epochs,
        "epochs": epochs,
        "best": min(validated, key=lambda epoch: epoch["validation_loss"])["epoch"] if validated else None,
        "bars_per_second": bars / seconds if seconds else None,
        **{name: run[name] for name in ("data", "parameters", "versions", "git")},
    }


class Run(NamedTuple):
    """What became of a run."""

    name: str
    step: int
    steps: int
    train_loss: float | None
    """Of the last epoch that ended."""
    validation_loss: float | None
    """The lowest of an epoch."""
    settings: Mapping[str, Any]
    """Those in which the runs listed with it differ."""


def list_runs(folder: Path) -> list[Run]:
    """All runs under a folder, by name, with the settings in which they differ.

    Raises:
        CheckpointError: there is none.
    """
    runs = [(path.parent, RunConfig.load(path)) for path in sorted(folder.rglob("config.toml")) if _is_run(path.parent)]
    if not runs:
        raise CheckpointError(f"{folder}: must hold runs of mamba2 train; got none. Name the folder above their --out.")
    first = runs[0][1]
    varied = {name for _, config in runs for name, _, _ in differing(config, first)}
    return [_summary(folder, out, config, varied) for out, config in runs]


def _is_run(out: Path) -> bool:
    return (out / "run.json").is_file()


def _summary(folder: Path, out: Path, config: RunConfig, varied: set[str]) -> Run:
    lines = read_metrics(out)
    steps = [line for line in lines if line["kind"] == "step"]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    validations = [line["validation_loss"] for line in epochs if line["validation_loss"] is not None]
    sections = asdict(config)
    values = {name: sections[name.partition(".")[0]][name.partition(".")[2]] for name in sorted(varied)}
    return Run(
        name=str(out.relative_to(folder)),
        step=steps[-1]["step"] if steps else 0,
        steps=steps[-1]["steps"] if steps else 0,
        train_loss=epochs[-1]["train_loss"] if epochs else None,
        validation_loss=min(validations, default=None),
        settings=values,
    )
