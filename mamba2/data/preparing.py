"""Files of bars, of any size and number, to one folder that is read in place.

First the bars of each file are staged, one file after another; then the series are put together. A run that was killed
goes on with the first file that is not staged whole. The folder gets its name when all of it is on disk.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mamba2.data.condition import find_conditions
from mamba2.data.dbn import open_dbn
from mamba2.data.folder import BARS, CHECKSUMS, FORMAT, MANIFEST, NUMBER, WIDTH, checksums, read_manifest
from mamba2.data.merge import merge
from mamba2.data.series import Source, series_of
from mamba2.data.staging import Staged, read_staged, stage
from mamba2.disk import reach_disk, sha256
from mamba2.errors import DataError


class Read(NamedTuple):
    """A file whose bars are staged."""

    path: Path
    records: int
    is_new: bool
    """Not staged by a run before, which was stopped."""


def prepare_folder(files: Sequence[Path], out: Path) -> Iterator[Read]:
    """Writes the bars of the files to a folder, and yields each file once it is read.

    What `load_bars` refuses is refused here, and what it gives for the files it gives for the folder. It takes the
    memory of a few chunks, and while it runs the disk of twice the bars. A folder of just these files is left as it is.

    Raises:
        DataError: a file is refused; `out` holds something else, cannot be written, or is being prepared already.
    """
    place = out.resolve()
    work = place.with_name(f".{place.name}.unfinished")
    digests = [_digest(path) for path in files]
    if _is_there(out, digests):
        shutil.rmtree(work, ignore_errors=True)
        return
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _locked(work, out):
            staged = read_staged(work)
            for path, digest in zip(files, digests, strict=True):
                is_new = digest not in staged
                if is_new:
                    staged[digest] = stage(work, path, digest)
                yield Read(path, staged[digest].source.messages, is_new)
            _put_together([_of(path, staged[digest]) for path, digest in zip(files, digests, strict=True)], work, place)
    except OSError as error:
        raise DataError(
            f"{out}: must be writable; {error.strerror}. Check the folder, its permissions and the room on the disk."
        ) from error
    shutil.rmtree(work, ignore_errors=True)


def _digest(path: Path) -> str:
    open_dbn(path)  # which refuses by name what cannot be read, or is read for ever
    return sha256(path)


def _is_there(out: Path, digests: Sequence[str]) -> bool:
    """Whether the folder was prepared from these files before.

    Raises:
        DataError: it is something else.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        found = [each["sha256"] for each in read_manifest(out)["files"]]
    except DataError:
        found = None
    if found is None or sorted(found) != sorted(digests):
        raise DataError(
            f"{out}: must be a new or empty folder, or hold the bars of just these files; it holds something else. "
            "Choose another --out."
        )
    return True


@contextmanager
def _locked(work: Path, out: Path) -> Iterator[None]:
    """Keeps other processes out: two that write to one file would spoil it unseen."""
    with (work / "lock").open("w", encoding="utf-8") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(
                f"{out}: must be prepared by one process at a time; another is at it. "
                "Wait for it, or choose another --out."
            ) from error
        yield


def _of(path: Path, staged: Staged) -> Staged:
    """What is staged, under the path that the file has now."""
    parts = {key: part._replace(path=path) for key, part in staged.source.parts.items()}
    return staged._replace(source=staged.source._replace(path=path, parts=parts))


def _put_together(staged: Sequence[Staged], work: Path, place: Path) -> None:
    """Writes the folder aside and gives it its name once all of it is on disk."""
    aside = work / "whole"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    sources = [each.source for each in staged]
    content = {
        "format": FORMAT,
        "series": _write_bars(aside / BARS, sources),
        "interval": sources[0].interval,
        "files": [
            {"name": each.name, "sha256": each.sha256, "dataset": each.dataset, "records": each.source.messages}
            for each in staged
        ],
        "conditions": {day.isoformat(): what for day, what in find_conditions(sources).items()},
    }
    (aside / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (aside / CHECKSUMS).write_text(checksums(aside), encoding="utf-8")
    for path in (*aside.iterdir(), aside):
        reach_disk(path)
    if place.exists():
        place.rmdir()
    aside.rename(place)
    reach_disk(place.parent)


def _write_bars(path: Path, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Writes one series after another; returns where each is.

    A column has room for the bars of all files; what is free at its end was repeated.
    """
    series, at = [], 0
    with path.open("wb") as file:
        for key, parts in series_of(sources):
            room, bars = sum(part.bars for part in parts), 0
            for block in merge(key.symbol, parts):
                for column, values in enumerate(block):
                    file.seek(NUMBER.itemsize * (at + column * room + bars))
                    file.write(np.ascontiguousarray(values, NUMBER).data)
                bars += block.shape[1]
            series.append({**key._asdict(), "at": at, "room": room, "bars": bars, "repeated": room - bars})
            at += WIDTH * room
        file.truncate(NUMBER.itemsize * at)
    return series
