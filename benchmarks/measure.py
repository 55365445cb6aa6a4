"""Clocks, interleaved rounds and ratios: what makes a time comparable on a machine that others use too."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

Clock = Callable[[Callable[[], object]], float]
"""Runs something and says how many seconds it took."""


class Ratio(NamedTuple):
    """The median of the rounds' ratios, and its spread."""

    median: float
    low: float
    high: float


def cpu_clock(run: Callable[[], object]) -> float:
    """Processor time of this process: what others do on the machine does not count."""
    began = time.process_time()
    run()
    return time.process_time() - began


def wall_clock(run: Callable[[], object]) -> float:
    """Time on the wall, for more than one thread."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def cuda_clock(run: Callable[[], object]) -> float:
    """Time on the device between two events."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, repeat: int, clock: Clock
) -> dict[str, list[float]]:
    """Seconds of each contender in each round, all of them once a round; each has one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds + 1):
        for name, run in contenders.items():
            seconds = clock(lambda run=run: [run() for _ in range(repeat)]) / repeat
            if index:
                times[name].append(seconds)
    return times


def peak_memory() -> int:
    """Bytes, of this program alone: what getrusage says begins with the peak of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kilobytes) * 1024


def ratio(times: list[float], base: list[float]) -> Ratio:
    """How many times the base, round by round.

    >>> ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0])
    Ratio(median=2.0, low=2.0, high=3.0)
    """
    each = [a / b for a, b in zip(times, base, strict=True)]
    return Ratio(statistics.median(each), min(each), max(each))
