"""The whole room in one call: files of bars to training and validation windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mamba2.config import FEATURES, DataConfig
from mamba2.data.bars import Bars, Dropped, Market, load_bars, slabs, utc
from mamba2.data.degraded import degraded_days, without_degraded
from mamba2.data.features import compute_features, compute_targets
from mamba2.data.selection import Selection, segment_starts, select
from mamba2.data.tables import new_table
from mamba2.data.windows import Track, Windows, chosen_segments, lay_windows, split_by_time
from mamba2.errors import DataError

_NAMED = 3
"""So many series are named in an error; of the others only the number."""


@dataclass(frozen=True, eq=False)
class Tracks:
    """The chosen contracts, with features and targets at every bar."""

    market: Market
    selection: Selection
    tracks: tuple[Track, ...]

    @property
    def bars(self) -> int:
        """How many bars are chosen."""
        return sum(int(each.keep.sum()) for each in self.selection.series)

    @property
    def contracts(self) -> list[tuple[Track, NDArray[np.bool_]]]:
        """Each contract's table, and which of its bars are chosen."""
        return [(track, each.keep) for track, each in zip(self.tracks, self.selection.series, strict=True)]


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
    degraded: int = 0
    """Bars in use of days on which Databento says that its data have flaws, spreads included."""
    interval: int | None = None
    """Nanoseconds from one bar to the next; None where there were no files."""


def prepare(files: Sequence[Path], config: DataConfig) -> Dataset:
    """Reads files of bars and lays training and validation windows over the contract that the config names.

    Raises:
        DataError: a file is refused, the contract is not there, or a part that is wanted has no windows.
    """
    return split(make_tracks(load_bars(files), config), config)


def make_tracks(market: Market, config: DataConfig) -> Tracks:
    """Chooses the config's contract and computes its features and targets.

    Raises:
        DataError: the contract is not there.
    """
    if config.skip_degraded:
        market = without_degraded(market)
    selection = select(market, config.contract)
    return Tracks(market, selection, tuple(_lay_tracks(selection, config, market.folder)))


def split(tracks: Tracks, config: DataConfig) -> Dataset:
    """Lays windows over the tracks, and splits them by time with a purge of window + horizon bars.

    Raises:
        DataError: there is no window, none left to train on, or none to validate on although a fraction is wanted.
    """
    market, selection = tracks.market, tracks.selection
    keeps = [selected.keep for selected in selection.series]
    stride = config.stride or config.window
    windows = lay_windows(tracks.tracks, keeps, length=config.window, stride=stride, warm_up=config.warm_up)
    if len(windows) == 0:
        raise DataError(_no_windows(tracks, config))
    purge = config.window + config.horizon
    train, validation = split_by_time(windows, config.validation_fraction, purge, market.series[0].interval)
    if len(train) == 0 or (config.validation_fraction > 0 and len(validation) == 0):
        raise DataError(_empty_part(windows, validation, config))
    return Dataset(
        files=market.files,
        messages=market.messages,
        instruments=len(market.series),
        bars=tracks.bars,
        train=train,
        validation=validation,
        sequences=len(windows),
        purged=len(windows) - len(train) - len(validation),
        dropped=market.dropped + selection.dropped,
        interval=market.series[0].interval,
        degraded=sum(day.bars for day in degraded_days(market)),
    )


def _lay_tracks(selection: Selection, config: DataConfig, folder: Path | None) -> Iterator[Track]:
    """The table of each contract; all of them are parts of a few arrays, for files that are open are few."""
    total = sum(len(each.bars) for each in selection.series)
    features = new_table((total, len(config.features)), np.float32, folder)
    targets = new_table((total, len(config.targets)), np.float32, folder)
    volatility = new_table((total,), np.float64, folder)
    valid = np.zeros(total, bool)
    end = 0
    for bars, keep in ((each.bars, each.keep) for each in selection.series):
        rows = slice(end, end := end + len(bars))
        starts = segment_starts(bars, keep, config.max_gap)
        track = Track(bars.symbol, bars.time, features[rows], targets[rows], valid[rows], volatility[rows], starts)
        _fill(track, bars, config)
        yield track


def _fill(track: Track, bars: Bars, config: DataConfig) -> None:
    """Computes features and targets, a slab of bars at a time."""
    columns, state = [FEATURES.index(name) for name in config.features], None
    for part in slabs(len(bars)):
        values, track.volatility[part], state = compute_features(bars[part], track.starts[part], state)
        track.features[part] = values[:, columns]
    for part in slabs(len(bars)):
        seen = slice(part.start, part.stop + config.horizon)
        targets, valid = compute_targets(
            bars[seen], track.starts[seen], track.volatility[seen], horizon=config.horizon, names=config.targets
        )
        count = part.stop - part.start
        track.targets[part], track.valid[part] = targets[:count], valid[:count]


def _no_windows(tracks: Tracks, config: DataConfig) -> str:
    """Which rule left no window of any series."""
    if not tracks.tracks:
        left_out = [f"{each.symbol}: {each.bars} bars {each.why}" for each in tracks.selection.dropped]
        return f"no windows: {_few(left_out)}: name a contract with --symbol or take --all."
    needed = max(config.window, config.horizon + 1)
    reasons = []
    for track, selected in zip(tracks.tracks, tracks.selection.series, strict=True):
        lengths = [end - first for first, end in chosen_segments(track, selected.keep, config.warm_up)]
        reasons.append(
            f"{track.symbol}: longest segment after the {config.warm_up} warm-up bars has {max(lengths, default=0)} "
            f"bars, a window needs {needed}"
        )
    return f"no windows: {_few(reasons)}: choose a smaller --window or --warm-up{_way_out(config)}."


def _empty_part(windows: Windows, validation: Windows, config: DataConfig) -> str:
    """Which rule left no training or no validation window."""
    counts = np.bincount(windows.track, minlength=len(windows.tracks)).tolist()
    laid = _few([f"{track.symbol}: {count}" for track, count in zip(windows.tracks, counts, strict=True) if count])
    if len(validation) == 0:
        return f"no validation windows: {config.validation_fraction} of all windows ({laid}) is none: add more days."
    where = zip(validation.track, validation.start, strict=True)
    start = min(validation.tracks[track].time[bar] for track, bar in where)
    return (
        f"no training windows: of all windows ({laid}) none ends {config.window + config.horizon} bars (window + "
        f"horizon) before validation starts at {utc(start)}: choose a smaller --window or more days{_way_out(config)}."
    )


def _way_out(config: DataConfig) -> str:
    is_front = config.contract == "front"
    return ", or name a contract with --symbol, for 'front' has none in the first session" if is_front else ""


def _few(items: Sequence[str]) -> str:
    more = f"; and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return "; ".join(items[:_NAMED]) + more
