"""The benchmark of bars: every figure stands beside its goal; no time is judged."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.bars import Figure, describe, main, write_bars
from mamba2.data.bars import load_bars


def test_files_of_any_length_are_bars_of_the_example(tmp_path: Path) -> None:
    market = load_bars([write_bars(tmp_path / "a.dbn", 4000)])

    assert market.messages == 4000
    assert [bars.symbol for bars in market.series] == ["6EH4", "6EH4-6EM4", "6EM4", "6EU4", "6EZ4"]


@pytest.mark.filterwarnings("ignore")  # databento leaves files open
def test_each_figure_stands_beside_its_goal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--records", "300", "--rounds", "1", "--folder", str(tmp_path), "--json", str(tmp_path / "a.json")])
    figures = json.loads((tmp_path / "a.json").read_text())

    assert [(each["name"].partition(",")[0], each["goal"]) for each in figures] == [
        ("features", "<= 3.0"),
        ("features", "<= 50.0"),
        *2 * [("validated / to_ndarray", "<= 1.0"), ("columns / to_ndarray", "<= 1.5"), ("to_df / columns", ">= 5")],
        ("memory of prepare / decoded size", "<= 0.25"),
    ]
    assert all(math.isfinite(each["measured"]) for each in figures)
    assert len(capsys.readouterr().out.splitlines()) == len(figures)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_goal_that_is_missed_is_said_to_be() -> None:
    missed = Figure("columns / to_ndarray, 1,674 records, raw", "<= 1.5", 3.0, 2.9, 3.2, met=False)

    assert " ".join(describe(missed).split()) == (
        "columns / to_ndarray, 1,674 records, raw <= 1.5 3.00 (2.90 to 3.20) NOT met"
    )
