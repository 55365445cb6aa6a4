"""Where the bars of files wait until all files are read: one file of runs, and one line of an index for each file.

runs           int64, little endian: the columns of a few bars of one series, one run after another
index.jsonl    which runs hold the bars of which file; a line is written once the runs that it names are on disk
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mamba2.data.dbn import open_dbn
from mamba2.data.folder import NUMBER, WIDTH
from mamba2.data.series import Columns, Key, Part, Source, source_of, split

_RUNS, _INDEX = "runs", "index.jsonl"


class Staged(NamedTuple):
    """A file whose bars are staged."""

    name: str
    sha256: str
    dataset: str
    source: Source


@dataclass(frozen=True)
class _Runs:
    """The blocks of one part, read as they are asked for."""

    file: Path
    places: list[list[int]]
    """Of each run: where it begins in the file, and how many bars it has."""

    def __iter__(self) -> Iterator[Columns]:
        for at, bars in self.places:
            yield np.fromfile(self.file, NUMBER, WIDTH * bars, offset=at).reshape(WIDTH, bars)


def stage(folder: Path, path: Path, sha256: str) -> Staged:
    """Adds the bars of a DBN file; of one that is refused or killed meanwhile nothing is ever read.

    Raises:
        DataError: the file is refused.
        OSError: the folder cannot be written.
    """
    header, chunks = open_dbn(path)
    series: dict[Key, dict[str, Any]] = {}
    with (folder / _RUNS).open("ab") as runs:
        for key, columns in split(header, chunks):
            first, last = int(columns[0, 0]), int(columns[0, -1])
            known = series.setdefault(key, {"key": key, "first": first, "runs": []})
            known["last"] = last
            known["runs"].append([runs.tell(), columns.shape[1]])
            runs.write(np.ascontiguousarray(columns, NUMBER).data)
        runs.flush()
        os.fsync(runs.fileno())
        content = {
            "name": path.name,
            "sha256": sha256,
            "dataset": header.dataset,
            "interval": header.interval,
            "end": runs.tell(),
            "series": list(series.values()),
        }
    with (folder / _INDEX).open("a", encoding="utf-8") as index:
        index.write(json.dumps(content) + "\n")
        index.flush()
        os.fsync(index.fileno())
    return _staged(folder / _RUNS, content)


def read_staged(folder: Path) -> dict[str, Staged]:
    """The files that are staged whole, by their SHA-256; what else is there is cut off.

    Raises:
        OSError: the folder cannot be read or written.
    """
    index, runs = folder / _INDEX, folder / _RUNS
    index.touch()
    runs.touch()
    lines = [line for line in index.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    contents = [json.loads(line) for line in lines]
    end = max((content["end"] for content in contents), default=0)
    if runs.stat().st_size < end:  # somebody else's doing: nothing is to be trusted
        lines, contents, end = [], [], 0
    os.truncate(index, sum(map(len, lines)))
    os.truncate(runs, end)
    return {content["sha256"]: _staged(runs, content) for content in contents}


def _staged(runs: Path, content: dict[str, Any]) -> Staged:
    name, parts = Path(content["name"]), {}
    for each in content["series"]:
        bars = sum(count for _, count in each["runs"])
        parts[Key(*each["key"])] = Part(name, each["first"], each["last"], bars, _Runs(runs, each["runs"]))
    source = source_of(name, content["interval"], parts)
    return Staged(content["name"], content["sha256"], content["dataset"], source)
