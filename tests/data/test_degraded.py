"""Days on which Databento says that its data have flaws: found beside the files, shown, and left out."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from mamba2.config import DataConfig
from mamba2.data.bars import Dropped, Market, load_bars
from mamba2.data.dataset import make_tracks, prepare
from mamba2.data.degraded import DayRow, degraded_days, without_degraded
from mamba2.data.preparing import prepare_folder
from mamba2.data.synthetic import write_example
from mamba2.errors import DataError
from mamba2.train.records import data_digest

THIRD = date(2024, 1, 3)


@pytest.fixture
def example(tmp_path: Path) -> list[Path]:
    """Four days of which one is degraded, as `condition.json` of a batch download says."""
    files = write_example(tmp_path)
    days = {"2024-01-01": "degraded", "2024-01-02": "available", "2024-01-03": "degraded", "2024-01-04": "available"}
    content = [{"date": day, "condition": what, "last_modified_date": "2024-02-01"} for day, what in days.items()]
    (tmp_path / "condition.json").write_text(json.dumps(content), encoding="utf-8")
    return files


def columns(market: Market) -> list[tuple[str, list[list[int]]]]:
    return [
        (bars.symbol, np.array([bars.time, bars.open, bars.high, bars.low, bars.close, bars.volume]).tolist())
        for bars in market.series
    ]


def test_a_degraded_day_is_found_with_its_bars(example: list[Path]) -> None:
    market = load_bars(example)

    assert dict(market.conditions) == {THIRD: "degraded"}  # the first of January is not one of the files' days
    assert degraded_days(market) == (DayRow(THIRD, "degraded", 1846),)


def test_a_degraded_day_is_left_out_as_if_its_file_were_not_there(example: list[Path]) -> None:
    market = without_degraded(load_bars(example))

    assert columns(market) == columns(load_bars([example[0], *example[2:]]))
    assert degraded_days(market) == ()
    assert sum(each.bars for each in market.dropped) == 1846
    assert market.dropped[0] == Dropped("6EH4", 1380, "of days that Databento marks as degraded")


def test_a_series_of_degraded_days_alone_is_gone(example: list[Path]) -> None:
    market = without_degraded(load_bars(example[1:2]))

    assert market.series == ()
    assert sum(each.bars for each in market.dropped) == 1846


@pytest.mark.parametrize("contract", ["front", "all"])
def test_training_leaves_degraded_days_out_if_it_is_told_to(contract: str, example: list[Path]) -> None:
    config = DataConfig(contract=contract)
    without = prepare(example, replace(config, skip_degraded=True))

    assert data_digest(without) == data_digest(prepare([example[0], *example[2:]], config))
    assert data_digest(without) != data_digest(prepare(example, config))
    assert (without.degraded, prepare(example, config).degraded) == (0, 1846)


def test_no_window_crosses_a_day_left_out(example: list[Path]) -> None:
    (track,) = make_tracks(load_bars(example), DataConfig(contract="6EH4", skip_degraded=True)).tracks
    after = int(np.searchsorted(track.time, np.datetime64("2024-01-04", "ns").astype(np.int64)))

    assert track.starts[after]


def test_prepared_bars_know_their_degraded_days(example: list[Path], tmp_path: Path) -> None:
    for _ in prepare_folder(example, tmp_path / "bars"):
        pass
    (tmp_path / "condition.json").unlink()
    market = load_bars([tmp_path / "bars"])

    assert dict(market.conditions) == {THIRD: "degraded"}
    assert columns(without_degraded(market)) == columns(load_bars([example[0], *example[2:]]))


def test_what_a_download_left_beside_its_file_counts_for_that_file(example: list[Path]) -> None:
    (example[0].parent / "condition.json").unlink()
    beside = example[2].with_name(f"{example[2].name}.condition.json")
    days = [{"date": "2024-01-04", "condition": "pending"}, {"date": "2024-01-05", "condition": "missing"}]
    beside.write_text(json.dumps(days), encoding="utf-8")

    assert degraded_days(load_bars(example)) == (DayRow(date(2024, 1, 4), "pending", 1818),)


def test_files_without_a_condition_have_no_degraded_days(example: list[Path]) -> None:
    (example[0].parent / "condition.json").unlink()

    assert degraded_days(load_bars(example)) == ()
    assert columns(without_degraded(load_bars(example))) == columns(load_bars(example))


@pytest.mark.parametrize(
    "content", ["", "{", "5", '["2024-01-03"]', '[{"date": "soon", "condition": "degraded"}]', "[{}]"]
)
def test_a_condition_that_cannot_be_read_is_refused(content: str, example: list[Path]) -> None:
    path = example[0].parent / "condition.json"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(DataError) as caught:
        load_bars(example)
    assert str(caught.value).startswith(f"{path}: must list days with date and condition, as Databento does; got ")
    assert str(caught.value).endswith(". Fetch it again, or move it away.")
    assert "\n" not in str(caught.value)
