"""The planted signals are in the files, and nowhere but where they are said to be."""

from pathlib import Path

import numpy as np
import pytest

from mamba2.data.bars import MINUTE, load_bars
from mamba2.data.dbn import read_dbn
from mamba2.data.planted import BURST_VOLUME, planted_records, write_planted
from mamba2.data.synthetic import are_synthetic, write_dbn
from mamba2.errors import DataError


def returns(signal: str, bars: int = 40_000) -> np.ndarray:
    return np.diff(np.log(planted_records(signal, bars=bars)["close"].astype(float)))


def autocorrelation(values: np.ndarray, lag: int) -> float:
    return float(np.corrcoef(values[lag:], values[:-lag])[0, 1])


def test_a_planted_file_holds_one_contract_with_as_many_bars_as_asked_for(tmp_path: Path) -> None:
    market = load_bars([write_planted(tmp_path / "a.dbn.zst", "ar1", bars=3000)])

    assert [(each.symbol, len(each)) for each in market.series] == [("6EH4", 3000)]


def test_sessions_last_23_hours(tmp_path: Path) -> None:
    (bars,) = load_bars([write_planted(tmp_path / "a.dbn.zst", "ar1", bars=3000)]).series
    gaps = np.diff(bars.time)

    assert gaps[gaps != MINUTE].tolist() == [61 * MINUTE, 61 * MINUTE]


def test_ar1_returns_follow_the_last_one_only() -> None:
    found = returns("ar1")

    assert autocorrelation(found, 1) == pytest.approx(0.3, abs=0.015)
    assert autocorrelation(found, 2) == pytest.approx(0.09, abs=0.02)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_regime_returns_have_no_autocorrelation(lag: int) -> None:
    assert autocorrelation(returns("regime"), lag) == pytest.approx(0.0, abs=0.02)


def test_a_burst_of_volume_sets_the_sign_of_the_regime() -> None:
    records = planted_records("regime")
    low = 20 * BURST_VOLUME[0]
    burst = np.where(records["volume"] > 5 * low, -1, np.where(records["volume"] > low / 5, 1, 0))
    last = np.maximum.accumulate(np.where(burst != 0, np.arange(len(burst)), 0))
    sign = burst[last][1:-1]
    change = returns("regime")
    known = last[1:-1] > 0

    for each in (1, -1):
        now, after = change[:-1][known & (sign == each)], change[1:][known & (sign == each)]
        # Of a moving average with coefficient 0.3: 0.3 / (1 + 0.3²).
        assert np.corrcoef(now, after)[0, 1] == pytest.approx(each * 0.3 / 1.09, abs=0.02)


def test_both_signs_are_equally_frequent() -> None:
    volume = planted_records("regime")["volume"]
    bursts = np.flatnonzero(volume > 20 * 12)
    lengths = np.diff(bursts)

    assert 100 <= lengths.min() <= lengths.max() <= 200
    assert lengths[::2].sum() / lengths.sum() == pytest.approx(0.5, abs=0.02)


def test_the_mark_survives_the_file_and_real_files_have_none(tmp_path: Path) -> None:
    planted = write_planted(tmp_path / "a.dbn.zst", "ar1", bars=10)
    file = read_dbn(planted)
    real = write_dbn(tmp_path / "b.dbn", file.records, symbols=file.symbols)

    assert file.dataset == "SYNTHETIC"
    assert are_synthetic([planted])
    assert not are_synthetic([planted, real])


def test_planted_bars_are_the_same_each_time() -> None:
    assert np.array_equal(planted_records("regime", bars=500), planted_records("regime", bars=500))
    assert not np.array_equal(planted_records("regime", bars=500), planted_records("regime", bars=500, seed=1))


def test_an_unknown_signal_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        planted_records("ar2")

    assert str(caught.value) == "planted signal: must be one of ar1, regime; got 'ar2'. Choose one of them."
