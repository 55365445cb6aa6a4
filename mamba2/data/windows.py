"""Windows over tracks of features, as indices into them; their split by time, and batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)


class Track(NamedTuple):
    """The table of one contract, a row a bar, bars that are not chosen included."""

    symbol: str
    time: NDArray[np.int64]
    """When the bar opens, nanoseconds UTC."""
    features: NDArray[np.float32]
    """[bar, feature]"""
    targets: NDArray[np.float32]
    """[bar, target], 0 where not valid."""
    valid: NDArray[np.bool_]
    """Whether the target lies in the bar's own segment."""
    volatility: NDArray[np.float64]
    """What the targets were divided by."""
    starts: NDArray[np.bool_]
    """Whether the bar begins a segment."""


class Batch(NamedTuple):
    """Some windows side by side."""

    features: NDArray[np.float32]
    """[window, time, feature]"""
    targets: NDArray[np.float32]
    """[window, time, target]"""
    valid: NDArray[np.bool_]
    """[window, time]"""
    time: NDArray[np.int64]
    """[window, time], when each bar opens, nanoseconds UTC."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows as indices: `length` bars of track `track[i]` from bar `start[i]` on."""

    tracks: tuple[Track, ...]
    length: int
    track: NDArray[np.int64]
    start: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    def subset(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Windows":
        """The windows that a mask or indices choose."""
        return replace(self, track=self.track[chosen], start=self.start[chosen])

    def gather(self, indices: NDArray[np.int64]) -> Batch:
        """Copies the chosen windows out of their tracks, in the order of `indices`."""
        track = self.track[indices]
        rows = self.start[indices][:, None] + np.arange(self.length)
        return Batch(
            features=_pick([each.features for each in self.tracks], track, rows),
            targets=_pick([each.targets for each in self.tracks], track, rows),
            valid=_pick([each.valid for each in self.tracks], track, rows),
            time=_pick([each.time for each in self.tracks], track, rows),
        )


def _pick(columns: Sequence[NDArray[_T]], track: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[_T]:
    """Row rows[i, j] of column track[i], for all i and j."""
    picked = np.empty((*rows.shape, *columns[0].shape[1:]), columns[0].dtype)
    for each in np.unique(track):
        here = track == each
        picked[here] = columns[each][rows[here]]
    return picked


def lay_windows(
    tracks: Sequence[Track], keeps: Sequence[NDArray[np.bool_]], *, length: int, stride: int, warm_up: int
) -> Windows:
    """Lays a window every `stride` bars over each segment of chosen bars, from the end of the track's warm-up on.

    A window none of whose targets is valid is left out.

    Args:
        tracks: a table a contract.
        keeps: for each track, which of its bars are chosen; constant within a segment.
    """
    track, start = [], []
    for index, (each, keep) in enumerate(zip(tracks, keeps, strict=True)):
        for first, end in chosen_segments(each, keep, warm_up):
            laid = np.arange(first, end - length + 1, stride)
            laid = laid[each.valid[laid]]
            track.append(np.full(len(laid), index))
            start.append(laid)
    nothing = np.empty(0, np.int64)
    return Windows(tuple(tracks), length, np.concatenate([nothing, *track]), np.concatenate([nothing, *start]))


def chosen_segments(track: Track, keep: NDArray[np.bool_], warm_up: int) -> list[tuple[int, int]]:
    """First bar after the warm-up, and end, of each segment of chosen bars that has such a bar."""
    firsts = np.flatnonzero(track.starts)
    ends = np.append(firsts[1:], len(track.time))
    chosen = keep[firsts] & (ends > warm_up)
    return list(zip(np.maximum(firsts[chosen], warm_up).tolist(), ends[chosen].tolist(), strict=True))


def split_by_time(windows: Windows, fraction: float, purge: int, interval: int) -> tuple[Windows, Windows]:
    """Splits into training and validation windows by the time T at which the last `fraction` of all windows starts.

    A window is for training when both `purge` bars and `purge` intervals after its last bar still lie before T; with
    window + horizon bars to purge, no target of a training window reaches T. Windows in between are in neither part.

    Args:
        windows: of all tracks.
        fraction: of the windows that is held back; 0 for none.
        purge: bars.
        interval: nanoseconds that a bar spans.
    """
    cut = int((1 - fraction) * len(windows))
    if cut == len(windows):
        return windows, windows.subset(np.zeros(len(windows), bool))
    opens, cleared = np.empty((2, len(windows)), np.int64)
    for index, track in enumerate(windows.tracks):
        here = windows.track == index
        first = windows.start[here]
        last = first + windows.length - 1
        reach = np.minimum(last + purge, len(track.time) - 1)
        opens[here] = track.time[first]
        cleared[here] = np.maximum(track.time[reach], track.time[last] + purge * interval)
    start = np.sort(opens)[cut]
    return windows.subset(cleared < start), windows.subset(opens >= start)


def batches(windows: Windows, size: int, *, rng: np.random.Generator | None) -> Iterator[Batch]:
    """Yields all windows, `size` at a time and shuffled if there is an `rng`; the last batch may be smaller."""
    order = np.arange(len(windows)) if rng is None else rng.permutation(len(windows))
    for first in range(0, len(windows), size):
        yield windows.gather(order[first : first + size])
