"""A folder of bars as `mamba2 prepare` writes it, read in place.

bars.i8         int64, little endian: for each series time, open, high, low, close, volume, one column after another
manifest.json   which series, where in that file, and from which files
checksums       SHA-256 of both, as `sha256sum -c` reads it
"""

import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from mamba2.data.series import Columns, Key, Source, part_of
from mamba2.disk import sha256
from mamba2.errors import DataError

FORMAT = "mamba2-bars-1"
BARS, MANIFEST, CHECKSUMS = "bars.i8", "manifest.json", "checksums"
NUMBER = np.dtype("<i8")
WIDTH = 6
"""Columns of a bar."""


def read_folder(folder: Path) -> Source:
    """The bars of a prepared folder, mapped into memory and not read into it.

    Raises:
        DataError: the folder is not one that was prepared, is not whole, or holds other bytes than were written.
    """
    content = read_manifest(folder)
    try:
        names = [Key(each["symbol"], each["publisher_id"], each["instrument_id"]) for each in content["series"]]
        parts = {}
        if names:
            numbers = np.memmap(folder / BARS, NUMBER, "r").view(np.ndarray)
            for key, each in zip(names, content["series"], strict=True):
                parts[key] = part_of(folder, [_columns(numbers, each)])
        return Source(
            path=folder,
            interval=content["interval"],
            files=len(content["files"]),
            messages=sum(each["records"] for each in content["files"]),
            parts=parts,
            repeated={key: each["repeated"] for key, each in zip(names, content["series"], strict=True)},
            conditions={date.fromisoformat(day): what for day, what in content["conditions"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise _damaged(folder, f"{MANIFEST}: {error!r}") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """What is in a prepared folder, once all its bytes are those that were written.

    Raises:
        DataError: as `read_folder`.
    """
    try:
        listed = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace")
        if listed != checksums(folder):
            raise _damaged(folder, f"its files are not those of {CHECKSUMS}")
        content: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{folder}: must be DBN files, or a folder that mamba2 prepare finished; {error.filename} is missing. "
            "Name the files one by one, or prepare them."
        ) from error
    except (OSError, json.JSONDecodeError) as error:
        raise _damaged(folder, str(error)) from error
    if content.get("format") != FORMAT:
        raise DataError(
            f"{folder}: must have the format {FORMAT}; it has {content.get('format')}. Prepare the files again."
        )
    return content


def checksums(folder: Path) -> str:
    """The SHA-256 of the folder's files, as `sha256sum` writes it."""
    return "".join(f"{sha256(folder / name)}  {name}\n" for name in (BARS, MANIFEST))


def _columns(numbers: Columns, series: dict[str, int]) -> Columns:
    """The columns of a series: it begins at number `at` and has room for `room` bars, of which `bars` are there."""
    at, room = series["at"], series["room"]
    return numbers[at : at + WIDTH * room].reshape(WIDTH, room)[:, : series["bars"]]


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(f"{folder}: must be as mamba2 prepare left it; it is damaged: {what}. Prepare the files again.")
