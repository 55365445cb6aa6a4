"""Which bars may be learned from before a time, so that nothing learned reaches into what is judged after it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.data.windows import Track, Windows
from mamba2.errors import DataError

Mask = NDArray[np.bool_]


class Fold(NamedTuple):
    """A part of time to judge, learned from what lies before it; nanoseconds UTC."""

    start: int
    end: int
    """The first time that is no longer judged."""


def bars_before(track: Track, time: int, purge: int, interval: int) -> Mask:
    """Which bars have both `purge` bars and `purge` intervals after them before `time`, as the split of windows asks.

    With window + horizon bars to purge, no window and no target that ends there reaches `time`.
    """
    reach = np.minimum(np.arange(len(track.time)) + purge, len(track.time) - 1)
    clear: Mask = np.maximum(track.time[reach], track.time + purge * interval) < time
    return clear


def windows_before(windows: Windows, time: int, purge: int, interval: int) -> Windows:
    """The windows whose last bar is one of `bars_before`."""
    chosen = np.zeros(len(windows), bool)
    for index, track in enumerate(windows.tracks):
        here = windows.track == index
        chosen[here] = bars_before(track, time, purge, interval)[windows.start[here] + windows.length - 1]
    return windows.subset(chosen)


def expanding_folds(windows: Windows, count: int) -> tuple[Fold, ...]:
    """Cuts time into count + 1 parts with equally many windows; each but the first is judged from all before it.

    Raises:
        DataError: there are too few windows for so many parts.
    """
    opens = np.sort(np.concatenate([[], *(t.time[windows.start[windows.track == i]] for i, t in _numbered(windows))]))
    cuts = [int(opens[len(opens) * part // (count + 1)]) for part in range(1, count + 1)] if len(opens) else []
    if len(set(cuts)) < count:
        raise DataError(
            f"walk-forward: {count} folds need more than {count} windows that start at different times; got "
            f"{len(opens)}. Take fewer --folds, a smaller stride or more days."
        )
    return tuple(Fold(start, end) for start, end in zip(cuts, [*cuts[1:], np.iinfo(np.int64).max], strict=True))


def _numbered(windows: Windows) -> list[tuple[int, Track]]:
    return list(enumerate(windows.tracks))
