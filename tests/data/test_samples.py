"""Real Databento sample files, where a folder of them is at hand."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from mamba2.data.dbn import read_dbn
from mamba2.errors import DataError

FOLDER = os.environ.get("MAMBA2_DBN_SAMPLES")


class Sample(NamedTuple):
    version: int
    seconds: int
    records: int
    symbols: dict[str, list[int]]
    first_close: int | None
    """As an integer, in 1e-9."""


ESH1 = {"ESH1": [5482]}
READABLE = {
    "naut_glbx_esu4-nqu4_ohlcv-1m_two-instruments_midnight.v1.dbn.zst": Sample(
        1, 60, 60, {"ESU4": [118], "NQU4": [4358]}, 5_527_500_000_000
    ),
    "py_glbx_esh1_ohlcv-1m.v3.dbn.zst": Sample(3, 60, 4, ESH1, 3_704_750_000_000),
    "py_glbx_esh1_ohlcv-1s.v3.dbn.zst": Sample(3, 1, 4, ESH1, 3_702_500_000_000),
    "py_glbx_esh1_ohlcv-1h.v3.dbn.zst": Sample(3, 3600, 4, ESH1, 3_705_750_000_000),
    "py_glbx_esh1_ohlcv-1d.v3.dbn.zst": Sample(3, 86400, 1, ESH1, 3_735_000_000_000),
    "py_equs_qqq_ohlcv-1m.v3.dbn.zst": Sample(3, 60, 4, {"QQQ": [13340]}, 307_800_000_000),
    "py_opra_aapl-call_ohlcv-1d_multipublisher.v3.dbn.zst": Sample(
        3, 86400, 4, {"AAPL  250221C00250000": [16783963]}, 110_000_000
    ),
    "dbn_glbx_esh1_ohlcv-1m.v1.dbn.zst": Sample(1, 60, 2, ESH1, 372_100_000_000_000),
    "dbn_glbx_esh1_ohlcv-1m.v2.dbn.zst": Sample(2, 60, 2, ESH1, 372_100_000_000_000),
    "dbn_glbx_esh1_ohlcv-1m_uncompressed.v2.dbn": Sample(2, 60, 2, ESH1, 372_100_000_000_000),
    "dbn_glbx_esh1_ohlcv-1d_zero-records.v3.dbn.zst": Sample(3, 86400, 0, ESH1, None),
}
REFUSED = {
    "py_glbx_esh1_trades_wrong-schema.v3.dbn.zst": r"must hold bars; its schema is trades\. Download again: ohlcv-1s",
    "py_glbx_esh1_definition.v3.dbn.zst": r"must hold bars; its schema is definition\. Download again: ohlcv-1s",
    "py_live_mixed_symbolmapping+ohlcv.v3.dbn.zst": r"is mixed, .* has 20 symbol-mapping, .*2 ohlcv-1m, 2 ohlcv-1s",
    "dbn_glbx_esh1_ohlcv-1m_legacy.dbz": r"it is DBZ, the format before DBN\. Download it again, or convert it",
}


def sample_files() -> list[Path]:
    return sorted(Path(FOLDER).glob("*.db[nz]*")) if FOLDER else []


@pytest.fixture(params=sample_files(), ids=lambda path: path.name)
def path(request) -> Path:
    return request.param


@pytest.mark.skipif(not FOLDER, reason="MAMBA2_DBN_SAMPLES names no folder of real sample files")
def test_a_sample_is_read_or_refused_for_what_it_is(path):
    if path.name in REFUSED:
        with pytest.raises(DataError, match=REFUSED[path.name]):
            read_dbn(path)
        return
    if path.name not in READABLE:
        pytest.skip(f"{path.name} is no known sample")
    file, sample = read_dbn(path), READABLE[path.name]
    closes = file.records["close"].tolist()

    assert (file.version, file.interval) == (sample.version, sample.seconds * 10**9)
    assert {symbol: [each.instrument_id for each in spans] for symbol, spans in file.symbols.items()} == sample.symbols
    assert len(closes) == sample.records
    assert closes[:1] == [sample.first_close] * min(1, sample.records)
