"""What may be learned from before a time."""

import numpy as np
import pytest

from mamba2.data.bars import MINUTE
from mamba2.data.windows import Track, Windows, lay_windows, split_by_time
from mamba2.errors import DataError
from mamba2.evaluation.folds import bars_before, expanding_folds, windows_before

END = np.iinfo(np.int64).max


def track(minutes: list[int]) -> Track:
    n = len(minutes)
    return Track(
        "6EH4",
        np.array(minutes) * MINUTE,
        np.zeros((n, 1), np.float32),
        np.zeros((n, 1), np.float32),
        np.ones(n, bool),
        np.ones(n),
        np.arange(n) == 0,
    )


def windows(minutes: list[int], length: int = 2) -> Windows:
    return lay_windows([track(minutes)], [np.ones(len(minutes), bool)], length=length, stride=1, warm_up=0)


def test_the_purge_counts_bars_and_time() -> None:
    assert bars_before(track([0, 1, 2, 3, 4]), 4 * MINUTE, 2, MINUTE).tolist() == [True, True, False, False, False]
    assert bars_before(track([0, 1, 20, 21, 40]), 40 * MINUTE, 2, MINUTE).tolist() == [True, True, False, False, False]
    assert bars_before(track([0, 1]), 3 * MINUTE, 2, MINUTE).tolist() == [True, False]


def test_windows_are_purged_as_the_split_purges_them() -> None:
    laid = windows([0, 1, 2, 3, 4, 20, 21, 40, 41, 42])
    train, validation = split_by_time(laid, 0.34, 2, MINUTE)
    start = int(laid.tracks[0].time[validation.start[0]])

    assert windows_before(laid, start, 2, MINUTE).start.tolist() == train.start.tolist()


def test_folds_follow_one_another_and_the_last_has_no_end() -> None:
    folds = expanding_folds(windows(list(range(10)), length=1), 4)

    assert [(each.start, each.end) for each in folds] == [
        (2 * MINUTE, 4 * MINUTE),
        (4 * MINUTE, 6 * MINUTE),
        (6 * MINUTE, 8 * MINUTE),
        (8 * MINUTE, END),
    ]


def test_too_many_folds_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        expanding_folds(windows([0, 1, 2]), 3)

    assert str(caught.value) == (
        "walk-forward: 3 folds need more than 3 windows that start at different times; got 2. Take fewer --folds, a "
        "smaller stride or more days."
    )
