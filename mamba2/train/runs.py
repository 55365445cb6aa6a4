"""What a run leaves in its folder: which files it was trained on, and its checkpoints."""

import json
from collections.abc import Sequence
from pathlib import Path

from mamba2.errors import CheckpointError

_FILES = "files.json"


def record_files(run: Path, files: Sequence[Path]) -> None:
    """Notes the files that a run is trained on.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    try:
        run.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"files": [str(file.resolve()) for file in files]}, indent=2)
        (run / _FILES).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{run}: must be writable; {error.strerror}. Choose another folder.") from error


def home(run: Path) -> Path | None:
    """The run's folder itself, or that of the run that a checkpoint lies in; None where neither is one."""
    return next((folder for folder in (run, *run.resolve().parents[:2]) if (folder / _FILES).is_file()), None)


def recorded_files(run: Path) -> list[Path]:
    """The files that a run, or the run that a checkpoint belongs to, was trained on; none if that is not known.

    Raises:
        CheckpointError: the note is damaged.
    """
    if (folder := home(run)) is None:
        return []
    path = folder / _FILES
    try:
        return [Path(each) for each in json.loads(path.read_text(encoding="utf-8"))["files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: must list the run's files; it is damaged: {error!r}. Name the files."
        ) from error


def trained_interval(run: Path) -> int | None:
    """Nanoseconds from one bar to the next, of the run or of the one that a checkpoint belongs to; None if not known.

    Raises:
        CheckpointError: the run's record is damaged.
    """
    folder = home(run)
    if folder is None or not (folder / "run.json").is_file():
        return None
    try:
        interval: int | None = json.loads((folder / "run.json").read_text(encoding="utf-8"))["data"].get("interval")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder / 'run.json'}: must be the record of a run; {error!r}. Restore it.") from error
    return interval


def find_checkpoint(run: Path) -> Path:
    """The path itself when it is a checkpoint or names one, else the run's last.

    Raises:
        CheckpointError: there is none.
    """
    if run.is_file() or (run / "model.safetensors").is_file():
        return run
    for folder in (run / "checkpoints", run):
        if (folder / "last").is_file():
            return folder / "last"
    raise CheckpointError(f"{run}: must be a run or a checkpoint; it holds no model. Name the --out of mamba2 train.")
