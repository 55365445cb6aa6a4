"""The reference run's windows, their split, and what is said when there are none."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mamba2.config import DataConfig
from mamba2.data.bars import MINUTE
from mamba2.data.dataset import prepare
from mamba2.data.dbn import RECORD, SymbolInterval
from mamba2.data.synthetic import write_dbn, write_example
from mamba2.data.windows import Track, Windows, batches, lay_windows, split_by_time
from mamba2.errors import DataError

REFERENCE = DataConfig(contract="6EH4", window=60, stride=100, warm_up=60)
MIDNIGHT = int(np.datetime64("2024-01-02", "ns").astype(np.int64))


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return write_example(tmp_path_factory.mktemp("example"))


def make_track(minutes: Sequence[int], starts: Sequence[int] = (0,), valid: Sequence[int] | None = None) -> Track:
    """A track whose only feature is the bar's number, and its target the negative of that."""
    number = np.arange(len(minutes))
    return Track(
        symbol="6EH4",
        time=np.array(minutes) * MINUTE,
        features=number[:, None].astype(np.float32),
        targets=-number[:, None].astype(np.float32),
        valid=np.ones(len(minutes), bool) if valid is None else np.isin(number, valid),
        volatility=np.ones(len(minutes)),
        starts=np.isin(number, starts),
    )


def lay(track: Track, length: int = 3, stride: int = 3, warm_up: int = 0, keep: np.ndarray | None = None) -> list[int]:
    keep = np.ones(len(track.time), bool) if keep is None else keep
    return lay_windows([track], [keep], length=length, stride=stride, warm_up=warm_up).start.tolist()


def write_day(path: Path, bars: dict[str, Sequence[int]]) -> Path:
    """A file with bars of each symbol at the given minutes of 2024-01-02."""
    records = np.zeros(sum(map(len, bars.values())), RECORD)
    records["length"], records["rtype"], records["publisher_id"], records["volume"] = 14, 33, 1, 1
    for name in ("open", "high", "low", "close"):
        records[name] = 10**9
    minutes = [(minute, number) for number, each in enumerate(bars.values(), 1) for minute in each]
    for record, (minute, number) in zip(records, minutes, strict=True):
        record["ts_event"], record["instrument_id"] = MIDNIGHT + minute * MINUTE, number
    dates = (date(2024, 1, 1), date(2024, 2, 1))
    return write_dbn(path, records, symbols={s: (SymbolInterval(*dates, i),) for i, s in enumerate(bars, 1)})


def test_the_reference_run_has_55_windows_43_to_train_11_to_validate_1_purged(example):
    dataset = prepare(example, REFERENCE)

    assert (dataset.files, dataset.messages, dataset.instruments, dataset.bars) == (4, 7223, 5, 5460)
    assert (dataset.sequences, len(dataset.train), len(dataset.validation), dataset.purged) == (55, 43, 11, 1)
    assert dataset.train.start[:3].tolist() == [60, 160, 260]
    assert sum(each.bars for each in dataset.dropped) == 7223 - 5460


def test_without_a_validation_fraction_all_windows_train(example):
    dataset = prepare(example, replace(REFERENCE, validation_fraction=0.0))

    assert (len(dataset.train), len(dataset.validation), dataset.purged) == (55, 0, 0)


def test_the_stride_is_the_window_by_default(example):
    dataset = prepare(example, replace(REFERENCE, stride=None))

    assert dataset.sequences == 21 + 23 + 23 + 23


def test_features_and_targets_are_those_the_config_names(example):
    everything = prepare(example, REFERENCE).train.gather(np.arange(2))
    chosen = prepare(example, replace(REFERENCE, features=("gap", "ret"), targets=("range", "return"))).train
    batch = chosen.gather(np.arange(2))

    assert batch.features.tolist() == everything.features[:, :, [8, 0]].tolist()
    assert batch.targets[:, :, 1:].tolist() == everything.targets.tolist()


def test_a_window_stops_before_a_segment_ends():
    assert lay(make_track(range(8), starts=[0, 4])) == [0, 4]


def test_windows_lie_a_stride_apart():
    assert lay(make_track(range(6)), stride=1) == [0, 1, 2, 3]


def test_no_window_starts_within_the_warm_up():
    assert lay(make_track(range(9), starts=[0, 3]), warm_up=5) == [5]


def test_windows_lie_only_where_bars_are_chosen():
    keep = np.arange(9) >= 3

    assert lay(make_track(range(9), starts=[0, 3]), keep=keep) == [3, 6]


def test_a_window_without_any_valid_target_is_left_out():
    assert lay(make_track(range(6), valid=[0, 1, 2])) == [0]


def test_gather_copies_windows_of_several_tracks_in_the_order_asked_for():
    tracks = (make_track(range(5), valid=[0, 1, 2]), make_track(range(100, 105)))
    windows = Windows(tracks, length=2, track=np.array([0, 1, 0]), start=np.array([0, 3, 2]))

    batch = windows.gather(np.array([2, 1, 2]))

    assert batch.time.tolist() == [[2 * MINUTE, 3 * MINUTE], [103 * MINUTE, 104 * MINUTE], [2 * MINUTE, 3 * MINUTE]]
    assert batch.features.tolist() == [[[2.0], [3.0]], [[3.0], [4.0]], [[2.0], [3.0]]]
    assert batch.targets.tolist() == [[[-2.0], [-3.0]], [[-3.0], [-4.0]], [[-2.0], [-3.0]]]
    assert batch.valid.tolist() == [[True, False], [True, True], [True, False]]


def test_a_subset_holds_the_windows_chosen():
    windows = lay_windows([make_track(range(9))], [np.ones(9, bool)], length=3, stride=3, warm_up=0)

    assert windows.subset(np.array([2, 0])).start.tolist() == [6, 0]
    assert windows.subset(np.array([False, True, False])).start.tolist() == [3]


def test_the_split_leaves_the_purge_free_between_its_parts():
    windows = lay_windows([make_track(range(10))], [np.ones(10, bool)], length=2, stride=1, warm_up=0)

    train, validation = split_by_time(windows, 0.34, 2, MINUTE)

    assert len(windows) == 9
    assert validation.start.tolist() == [5, 6, 7, 8]
    assert train.start.tolist() == [0, 1]  # bars 0 to 2, then 3 and 4 purged


def test_the_purge_counts_bars_where_bars_are_missing():
    track = make_track([0, 1, 2, 3, 4, 20, 21, 40, 41, 42])
    windows = lay_windows([track], [np.ones(10, bool)], length=2, stride=1, warm_up=0)

    train, validation = split_by_time(windows, 0.34, 2, MINUTE)

    assert validation.start.tolist() == [5, 6, 7, 8]
    assert train.start.tolist() == [0, 1]


def test_the_purge_is_a_time_too_where_a_track_ends():
    tracks = [make_track(range(4)), make_track(range(4, 8))]
    windows = lay_windows(tracks, [np.ones(4, bool)] * 2, length=2, stride=2, warm_up=0)

    train, validation = split_by_time(windows, 0.5, 1, MINUTE)

    assert validation.track.tolist() == [1, 1]
    assert train.start.tolist() == [0]


def test_windows_that_start_together_are_split_together():
    tracks = [make_track(range(12)), make_track(range(12))]
    windows = lay_windows(tracks, [np.ones(12, bool)] * 2, length=2, stride=2, warm_up=0)

    _, validation = split_by_time(windows, 0.25, 1, MINUTE)

    assert validation.start.tolist() == [8, 10, 8, 10]


def test_batches_hold_every_window_once_and_the_last_may_be_short():
    windows = lay_windows([make_track(range(10))], [np.ones(10, bool)], length=2, stride=2, warm_up=0)

    plain = [batch.features[:, 0, 0].tolist() for batch in batches(windows, 2, rng=None)]
    shuffled = [batch.features[:, 0, 0].tolist() for batch in batches(windows, 2, rng=np.random.default_rng(0))]

    assert plain == [[0.0, 2.0], [4.0, 6.0], [8.0]]
    assert shuffled != plain
    assert sorted(each for batch in shuffled for each in batch) == [0.0, 2.0, 4.0, 6.0, 8.0]


def refusal(files: Sequence[Path], config: DataConfig) -> str:
    with pytest.raises(DataError) as caught:
        prepare(files, config)
    return str(caught.value)


def test_a_single_session_has_no_front(tmp_path):
    path = write_day(tmp_path / "day.dbn", {"ESU4": range(30)})

    assert refusal([path], DataConfig()) == (
        "no windows: ESU4: 30 bars in the first session, which has no past to choose the front contract by: "
        "name a contract with --symbol or take --all."
    )


def test_segments_shorter_than_a_window_are_named(tmp_path):
    path = write_day(tmp_path / "day.dbn", {"6EH4": [*range(72), *range(200, 205)]})

    assert refusal([path], DataConfig(contract="6EH4")) == (
        "no windows: 6EH4: longest segment after the 60 warm-up bars has 12 bars, a window needs 60: "
        "choose a smaller --window or --warm-up."
    )


def test_a_horizon_longer_than_the_window_is_what_a_segment_must_hold(tmp_path):
    path = write_day(tmp_path / "day.dbn", {"6EH4": range(8)})

    assert "has 8 bars, a window needs 10: " in refusal(
        [path], DataConfig(contract="6EH4", window=4, horizon=9, warm_up=0)
    )


def test_only_the_first_few_series_are_named(tmp_path):
    path = write_day(tmp_path / "day.dbn", {f"ES{month}4": range(2) for month in "FGHJK"})

    message = refusal([path], DataConfig(contract="all", warm_up=0))

    assert message.startswith(
        "no windows: ESF4: longest segment after the 0 warm-up bars has 2 bars, a window needs 60;"
    )
    assert message.endswith("; and 2 more: choose a smaller --window or --warm-up.")
    assert "ESJ4" not in message
    assert "\n" not in message


def test_a_purge_that_leaves_nothing_to_train_is_named(tmp_path):
    path = write_day(tmp_path / "day.dbn", {"6EH4": range(20)})

    assert refusal([path], DataConfig(contract="6EH4", window=5, warm_up=0, validation_fraction=0.8)) == (
        "no training windows: of all windows (6EH4: 4) none ends 6 bars (window + horizon) before validation starts at "
        "2024-01-02T00:00:00Z: choose a smaller --window or more days."
    )


def test_a_fraction_too_small_for_one_window_is_named(tmp_path):
    path = write_day(tmp_path / "day.dbn", {"6EH4": range(20)})

    assert refusal([path], DataConfig(contract="6EH4", window=5, warm_up=0, validation_fraction=1e-17)) == (
        "no validation windows: 1e-17 of all windows (6EH4: 4) is none: add more days."
    )
