"""`python -m benchmarks.bars`: reading bars beside databento's own reader, and the features of a bar, with the goals.

Files are made up: a day of 6E.FUT again and again, with other prices and volumes. Readers take turns in one process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import databento
import numpy as np

from benchmarks.measure import cpu_clock, interleave, peak_memory, ratio
from mamba2.data.bars import DAY, load_bars
from mamba2.data.dbn import RECORD, SymbolInterval, read_dbn
from mamba2.data.features import compute_features
from mamba2.data.preparing import prepare_folder
from mamba2.data.selection import segment_starts
from mamba2.data.synthetic import Symbols, example_files, write_dbn

SMALL = 1674
"""Records of a day."""

_SYMBOLS_END = date(2100, 1, 1)


class Figure(NamedTuple):
    """What was measured, beside what is wanted; a ratio unless the name has a unit."""

    name: str
    goal: str
    measured: float
    low: float
    high: float
    met: bool


def write_bars(path: Path, records: int, *, compress: bool = True) -> Path:
    """Writes the first day of the example so often that there are so many records."""
    _, day, symbols = next(iter(example_files()))
    rng = np.random.default_rng(0)
    days = -(-records // len(day))
    bars = np.tile(day, days)[:records]
    bars["ts_event"] += np.repeat(np.arange(days, dtype=np.uint64), len(day))[:records] * np.uint64(DAY)
    bars["volume"] = rng.integers(1, 2000, records)
    moves = rng.integers(-50, 50, records) * 50_000
    for name in ("open", "high", "low", "close"):
        bars[name] += moves
    mapped: Symbols = {
        symbol: (SymbolInterval(each[0].start, _SYMBOLS_END, each[0].instrument_id),)
        for symbol, each in symbols.items()
    }
    return write_dbn(path, bars, symbols=mapped, compress=compress, parent="6E.FUT")


def reading(path: Path, records: int, rounds: int) -> Iterator[Figure]:
    """Our readers over `DBNStore.to_ndarray`, and `to_df` over ours."""
    readers: dict[str, Callable[[], object]] = {
        "to_ndarray": lambda: databento.DBNStore.from_file(path).to_ndarray(),
        "validated": lambda: read_dbn(path),
        "columns": lambda: load_bars([path]),
    }
    if records <= 1_000_000:
        readers["to_df"] = lambda: databento.DBNStore.from_file(path).to_df()
    repeat = max(1, 20_000 // records)
    times = interleave(readers, rounds=rounds, repeat=repeat, clock=cpu_clock)
    where = f"{records:,} records, {'zstd' if path.suffix == '.zst' else 'raw'}"
    wanted = {"validated": 1.0, "columns": 1.5} if records <= 2000 else {"columns": 2.5}
    for name, goal in wanted.items():
        found = ratio(times[name], times["to_ndarray"])
        yield Figure(f"{name} / to_ndarray, {where}", f"<= {goal}", *found, met=found.median <= goal)
    if "to_df" in times:
        found = ratio(times["to_df"], times["columns"])
        yield Figure(f"to_df / columns, {where}", ">= 5", *found, met=found.median >= 5)


def features(folder: Path, rounds: int) -> Iterator[Figure]:
    """Microseconds that the features of a bar take, all at once and bar by bar."""
    bars = load_bars([write_bars(folder / "features.dbn", 30_000, compress=False)]).series[0]
    starts, few = segment_starts(bars, np.ones(len(bars), bool), None), 2000

    def stream() -> None:
        state = None
        for row in range(few):
            state = compute_features(bars[row : row + 1], starts[row : row + 1], state).state

    runs: dict[str, Callable[[], object]] = {"batch": lambda: compute_features(bars, starts), "streaming": stream}
    times = interleave(runs, rounds=rounds, repeat=1, clock=cpu_clock)
    for name, count, goal in (("batch", len(bars), 3.0), ("streaming", few, 50.0)):
        each = sorted(seconds / count * 1e6 for seconds in times[name])
        median = each[len(each) // 2]
        yield Figure(f"features, {name}, us a bar", f"<= {goal}", median, each[0], each[-1], median <= goal)


def memory(path: Path, records: int) -> Figure:
    """What `mamba2 prepare` adds to the peak of a process that has prepared a small file, over the decoded size."""
    command = [sys.executable, "-m", "benchmarks.bars", "--memory-of", str(path)]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    share = grown / (records * RECORD.itemsize)
    return Figure(
        f"memory of prepare / decoded size, {records:,} records", "<= 0.25", share, share, share, share <= 0.25
    )


def memory_of_preparing(path: Path) -> int:
    """Bytes by which the peak of this process grows."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        small = write_bars(Path(folder) / "small.dbn", SMALL)
        list(prepare_folder([small], Path(folder) / "small"))
        before = peak_memory()
        list(prepare_folder([path], Path(folder) / "large"))
        return peak_memory() - before


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[SMALL, 1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the files; 3 GB are needed for 10 million records")
    parser.add_argument("--json", type=Path, help="a file to write")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory_of:
        print(memory_of_preparing(options.memory_of))
        return
    warnings.simplefilter("ignore")  # databento's: open files, pandas of later versions
    figures = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for figure in _all(Path(name), options.records, options.rounds):
            figures.append(figure)
            print(describe(figure), flush=True)
    if options.json:
        options.json.write_text(json.dumps([each._asdict() for each in figures], indent=2) + "\n", encoding="utf-8")


def _all(folder: Path, sizes: list[int], rounds: int) -> Iterator[Figure]:
    yield from features(folder, rounds)
    for records in sizes:
        for compress in (True, False):
            suffix = ".dbn.zst" if compress else ".dbn"
            path = write_bars(folder / f"{records}{suffix}", records, compress=compress)
            yield from reading(path, records, rounds)
    yield memory(path, max(sizes))


def describe(figure: Figure) -> str:
    """One line for people."""
    spread = "" if figure.low == figure.high else f"({figure.low:.2f} to {figure.high:.2f})"
    return f"{figure.name:52} {figure.goal:8} {figure.measured:7.2f} {spread:18} {'met' if figure.met else 'NOT met'}"


if __name__ == "__main__":
    main()
