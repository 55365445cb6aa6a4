"""Features and targets of a few bars, against values worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from mamba2.config import FEATURES
from mamba2.data.bars import MINUTE, Bars
from mamba2.data.features import compute_features, compute_targets
from mamba2.errors import DataError


def at(text: str) -> int:
    return int(np.datetime64(text, "ns").astype(np.int64))


def make_bars(time: Sequence[int], prices: Sequence[Sequence[float]], volume: Sequence[int]) -> Bars:
    """Bars with the given (open, high, low, close)."""
    opened, high, low, close = (np.round(np.array(prices).T * 1e9)).astype(np.int64)
    return Bars("6EH4", 1, 1, MINUTE, np.array(time), opened, high, low, close, np.array(volume))


NOON = at("2024-01-02T12:00")
FOUR = make_bars(
    [NOON, NOON + MINUTE, NOON + 5 * MINUTE, NOON + 60 * MINUTE],
    [(100, 102, 100, 101), (101, 103, 100, 102), (102, 104, 102, 103), (104, 105, 104, 104.5)],
    [9, 19, 4, 9],
)
STARTS = np.array([True, False, False, True])


def feature(bars: Bars, name: str, starts: np.ndarray | None = None) -> list[float]:
    starts = np.arange(len(bars)) == 0 if starts is None else starts
    return compute_features(bars, starts).values[:, FEATURES.index(name)].tolist()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ret", [0.0, 0.497525, 0.494814, 0.0]),
        ("range", [1.0, 1.492671, 0.984846, 0.487462]),
        ("body", [0.502475, 0.497525, 0.494814, 0.244314]),
        ("loc", [0.0, 1 / 3, 0.0, 0.0]),
        ("vol_z", [0.0, 0.694114, -0.696636, 6e-06]),
        ("log_s", [-3.921941, -3.926281, -3.930637, -3.930637]),
        ("tod_sin", [1.0, 0.9999904, 0.9997620, 0.9659258]),
        ("tod_cos", [0.0, -0.0043633, -0.0218149, -0.2588190]),
        ("gap", [0.0, 0.0, 2.0, 0.0]),
    ],
)
def test_each_feature_of_four_bars(name, expected):
    assert feature(FOUR, name, STARTS) == pytest.approx(expected, abs=1e-6)


def test_volatility_is_held_over_the_start_of_a_segment():
    volatility = compute_features(FOUR, STARTS).volatility

    assert volatility == pytest.approx([0.019802627, 0.019716866, 0.01963117, 0.01963117], abs=1e-9)


def test_the_state_is_that_after_the_last_bar():
    state = compute_features(FOUR, STARTS).state

    assert [type(each) for each in state] == [float, int, float, float, float]
    assert (state.close, state.time) == (104.5, NOON + 60 * MINUTE)
    assert state[2:] == pytest.approx((0.00038538285, 2.30257934, 0.99128123), rel=1e-7)


def test_the_first_bar_without_a_state_begins_a_segment_whatever_starts_says():
    unmarked = compute_features(FOUR, np.zeros(4, bool)).values
    marked = compute_features(FOUR, np.array([True, False, False, False])).values

    assert unmarked.tolist() == marked.tolist()


def test_no_bars_leave_the_state_as_it_is():
    state = compute_features(FOUR, STARTS).state

    nothing = compute_features(FOUR[:0], STARTS[:0], state)

    assert nothing.values.shape == (0, 9)
    assert nothing.state == state


@pytest.mark.parametrize(
    ("utc", "sine", "cosine"),
    [
        ("2024-03-08T22:00", -0.8660254, -0.5),  # 16:00 in Chicago, winter
        ("2024-03-11T22:00", -0.9659258, -0.2588190),  # 17:00, summer
        ("2024-01-02T23:00", -0.9659258, -0.2588190),  # 17:00, winter: the first bar of the next session
        ("2024-01-02T06:00", 0.0, 1.0),  # midnight
    ],
)
def test_time_of_day_is_that_of_the_exchange(utc, sine, cosine):
    bars = make_bars([at(utc)], [(1, 1, 1, 1)], [1])

    assert feature(bars, "tod_sin") == pytest.approx([sine], abs=1e-6)
    assert feature(bars, "tod_cos") == pytest.approx([cosine], abs=1e-6)


def test_a_bar_of_one_price_lies_in_its_middle():
    assert feature(make_bars([NOON], [(1.1, 1.1, 1.1, 1.1)], [1]), "loc") == [0.0]


def test_volatility_has_a_floor():
    bars = make_bars([NOON, NOON + MINUTE], [(1, 1, 1, 1), (1, 1.000002, 1, 1.000001)], [1, 1])
    features = compute_features(bars, np.array([True, False]))

    assert features.volatility[0] == 1e-6
    assert features.values[1, FEATURES.index("ret")] == pytest.approx(1.0, abs=1e-6)


def test_features_are_clipped_at_ten():
    bars = make_bars([NOON, NOON + MINUTE, NOON + 2 * MINUTE], [(1, 1, 1, 1), (2, 2, 2, 2), (1, 1, 1, 1)], [1, 1, 1])

    assert feature(bars, "ret")[1] == 10.0
    assert feature(bars, "log_s")[0] == -10.0


def test_features_are_float32_and_volatility_float64():
    features = compute_features(FOUR, STARTS)

    assert features.values.dtype == np.float32
    assert features.values.flags.c_contiguous
    assert features.volatility.dtype == np.float64


@pytest.mark.parametrize("compute", [compute_features, lambda bars, starts: targets_of(bars, starts, horizon=1)])
@pytest.mark.parametrize("price", [-1.85, 0.0])
def test_a_price_that_is_not_positive_is_refused(compute, price):
    least = (1e-9, 1e-9, 1e-9, 1e-9)
    bars = make_bars([NOON, NOON + MINUTE], [least, (1, 1, price, 1)], [1, 1])

    with pytest.raises(DataError) as caught:
        compute(bars, np.array([True, False]))

    assert str(caught.value) == (
        f"6EH4 at 2024-01-02T12:01:00Z: prices must be positive, for logs are taken of them; got {price}. "
        "Choose an outright contract."
    )


def test_the_least_price_there_is_has_its_features():
    assert feature(make_bars([NOON], [(1e-9, 2e-9, 1e-9, 1e-9)], [1]), "range") == pytest.approx([1.0])


def targets_of(bars: Bars, starts: np.ndarray, *, horizon: int) -> tuple[list[list[float]], list[bool]]:
    volatility = np.full(len(bars), 0.01)
    targets, valid = compute_targets(bars, starts, volatility, horizon=horizon, names=("range", "return"))
    return targets.tolist(), valid.tolist()


def test_targets_are_the_next_bars_range_and_return_in_units_of_volatility():
    targets, valid = targets_of(FOUR, STARTS, horizon=1)

    assert valid == [True, True, False, False]
    assert targets[0] == pytest.approx([2.955880, 0.985230], abs=1e-5)
    assert targets[1] == pytest.approx([1.941809, 0.975617], abs=1e-5)
    assert targets[2:] == [[0.0, 0.0], [0.0, 0.0]]


def test_a_target_may_lie_several_bars_ahead():
    targets, valid = targets_of(FOUR, STARTS, horizon=2)

    assert valid == [True, False, False, False]
    assert targets[0] == pytest.approx([1.941809, 1.960847], abs=1e-5)


@pytest.mark.parametrize("horizon", [4, 5, 9])
def test_a_horizon_beyond_the_bars_leaves_no_target(horizon):
    targets, valid = targets_of(FOUR, STARTS, horizon=horizon)

    assert valid == [False] * 4
    assert targets == [[0.0, 0.0]] * 4
