"""From files to training windows: tracks of features, windows as indices into them, and a split by time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mamba2.config import FEATURES, DataConfig
from mamba2.data.bars import Dropped, load_bars, utc
from mamba2.data.features import compute_features, compute_targets
from mamba2.data.selection import Selected, Selection, segment_starts, select
from mamba2.errors import DataError

_NAMED = 3
"""So many series are named in an error; of the others only the number."""


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
        _, *columns = (
            np.empty((*rows.shape, *column.shape[1:]), column.dtype)
            for column in (rows, *(getattr(self.tracks[0], name) for name in Batch._fields))
        )
        for each in np.unique(track):
            here = track == each
            for name, column in zip(Batch._fields, columns, strict=True):
                column[here] = getattr(self.tracks[each], name)[rows[here]]
        return Batch(*columns)


@dataclass(frozen=True, eq=False)
class Dataset:
    """What `prepare` makes of some files."""

    files: int
    messages: int
    """Records in the files."""
    instruments: int
    """Series in the files, spreads included."""
    bars: int
    """Bars chosen."""
    train: Windows
    validation: Windows
    sequences: int
    """Windows before the split."""
    purged: int
    """Windows that lie too close before the validation part."""
    dropped: tuple[Dropped, ...]


def prepare(files: Sequence[Path], config: DataConfig) -> Dataset:
    """Reads files of bars and lays training and validation windows over the contract that the config names.

    Raises:
        DataError: a file is refused, the contract is not there, or a part that is wanted has no windows.
    """
    market = load_bars(files)
    selection = select(market, config.contract)
    tracks = tuple(_track(selected, config) for selected in selection.series)
    keeps = [selected.keep for selected in selection.series]
    windows = lay_windows(
        tracks, keeps, length=config.window, stride=config.stride or config.window, warm_up=config.warm_up
    )
    if len(windows) == 0:
        raise DataError(_no_windows(tracks, selection, config))
    purge = config.window + config.horizon
    train, validation = split_by_time(windows, config.validation_fraction, purge, market.series[0].interval)
    if len(train) == 0 or (config.validation_fraction > 0 and len(validation) == 0):
        raise DataError(_empty_part(windows, train, validation, config))
    return Dataset(
        files=market.files,
        messages=market.messages,
        instruments=len(market.series),
        bars=sum(int(keep.sum()) for keep in keeps),
        train=train,
        validation=validation,
        sequences=len(windows),
        purged=len(windows) - len(train) - len(validation),
        dropped=market.dropped + selection.dropped,
    )


def _track(selected: Selected, config: DataConfig) -> Track:
    bars = selected.bars
    starts = segment_starts(bars, selected.keep, config.max_gap)
    features = compute_features(bars, starts)
    targets, valid = compute_targets(bars, starts, features.volatility, horizon=config.horizon, names=config.targets)
    columns = [FEATURES.index(name) for name in config.features]
    return Track(bars.symbol, bars.time, features.values[:, columns], targets, valid, features.volatility, starts)


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
        for first, end in _chosen_segments(each, keep, warm_up):
            laid = np.arange(first, end - length + 1, stride)
            laid = laid[each.valid[laid]]
            track.append(np.full(len(laid), index))
            start.append(laid)
    nothing = np.empty(0, np.int64)
    return Windows(tuple(tracks), length, np.concatenate([nothing, *track]), np.concatenate([nothing, *start]))


def _chosen_segments(track: Track, keep: NDArray[np.bool_], warm_up: int) -> list[tuple[int, int]]:
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
    everything = np.ones(len(windows), bool)
    cut = int((1 - fraction) * len(windows))
    if cut == len(windows):
        return windows, windows.subset(~everything)
    opens, closes = np.empty((2, len(windows)), np.int64)
    for index, track in enumerate(windows.tracks):
        here = windows.track == index
        first = windows.start[here]
        last = first + windows.length - 1
        reach = np.minimum(last + purge, len(track.time) - 1)
        opens[here] = track.time[first]
        closes[here] = np.maximum(track.time[reach], track.time[last] + purge * interval)
    start = np.sort(opens)[cut]
    return windows.subset(closes < start), windows.subset(opens >= start)


def batches(windows: Windows, size: int, *, rng: np.random.Generator | None) -> Iterator[Batch]:
    """Yields all windows, `size` at a time and shuffled if there is an `rng`; the last batch may be smaller."""
    order = np.arange(len(windows)) if rng is None else rng.permutation(len(windows))
    for first in range(0, len(windows), size):
        yield windows.gather(order[first : first + size])


def _no_windows(tracks: Sequence[Track], selection: Selection, config: DataConfig) -> str:
    """Which rule left no window of any series."""
    needed = max(config.window, config.horizon + 1)
    reasons = []
    for track, selected in zip(tracks, selection.series, strict=True):
        lengths = [end - first for first, end in _chosen_segments(track, selected.keep, config.warm_up)]
        reasons.append(
            f"{track.symbol}: longest segment after the {config.warm_up} warm-up bars has {max(lengths, default=0)} "
            f"bars, a window needs {needed}"
        )
    advice = "choose a smaller --window or --warm-up"
    if not tracks:
        reasons = [f"{each.symbol}: {each.bars} bars, all {each.why}" for each in selection.dropped]
        advice = "name one with --symbol or take --all"
    return f"no windows: {_few(reasons)}: {advice}."


def _empty_part(windows: Windows, train: Windows, validation: Windows, config: DataConfig) -> str:
    """Which rule left no training or no validation window."""
    symbols = [track.symbol for track in windows.tracks]
    counts = np.bincount(windows.track, minlength=len(symbols)).tolist()
    listed = _few([f"{symbol}: {count} windows" for symbol, count in zip(symbols, counts, strict=True) if count])
    if len(validation) == 0:
        return (
            f"no validation windows: {listed}: a fraction of {config.validation_fraction} of them is less than one: "
            "choose a smaller --window or --stride, or more days."
        )
    opens = validation.gather(np.arange(len(validation))).time[:, 0]
    return (
        f"no training windows: {listed}: none ends {config.window + config.horizon} bars (window + horizon) before "
        f"validation starts at {utc(int(opens.min()))}: choose a smaller --window or --horizon, or more days."
    )


def _few(items: Sequence[str]) -> str:
    more = f"; and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return "; ".join(items[:_NAMED]) + more
