"""The page of an evaluation, from the values that `--json` writes."""

from typing import Any

import pytest

from mamba2.report.evaluation_page import evaluation_page
from mamba2.report.page import render
from mamba2.report.parts import Forecasts, Page, Table, Text

MINUTE = 60 * 10**9
STRETCH: dict[str, Any] = {
    "symbol": "6EH4",
    "began": 0,
    "time": [0, MINUTE, 2 * MINUTE],
    "starts": [False, True, True],
    "rolls": ["", "", "6EM4"],
    "actual": [0.0, None, 3.0],
    "levels": [0.05, 0.5, 0.95],
    "quantiles": [[-1, -1, -1], [0, 0, 0], [1, 1, 1]],
}


def estimate(value: float | None, error: float | None = None) -> dict[str, float | None]:
    return {"value": value, "error": error}


def score(name: str, ratio: float) -> dict[str, Any]:
    others = {key: estimate(ratio) for key in ("raw_mse_ratio", "mae_ratio", "mase", "rank_ic")}
    return {
        "name": name,
        "mse_ratio": estimate(ratio, 0.01),
        "direction": estimate(None),
        "ic": estimate(0.1),
        **others,
    }


def evaluation(ratio: float = 0.9, *, leak: bool = False) -> dict[str, Any]:
    target = {
        "target": "return",
        "naive": "zero",
        "bars": 1200,
        "days": 2,
        "scores": [score("model", ratio), score("zero", 1.0)],
        "coverage": [{"level": 0.05, "share": estimate(0.06, 0.01)}, {"level": 0.95, "share": estimate(0.93)}],
        "by_position": [{"first": 960, "end": 1920, "bars": 400, "mse_ratio": estimate(0.95)}],
        "verdict": "better than the zero forecast by 10.0 % of squared error",
        "suspected_leak": leak,
    }
    return {"first": "2024-01-04T14:00:00Z", "last": "2024-01-05T05:58:00Z", "synthetic": True, "targets": [target]}


def parts(page: Page, title: str) -> list[Any]:
    return list(next(section.parts for section in page.sections if section.title == title))


def test_the_model_stands_in_one_table_with_what_costs_nothing() -> None:
    page = evaluation_page("evaluation", evaluation(), None, STRETCH)
    figures, table, _ = parts(page, "Next to forecasts that cost nothing: return")
    forecasts, said = parts(page, "Forecasts against what happened")

    assert (page.title, page.passed) == ("mamba2 evaluate", None)
    assert page.summary == (
        "Return: the model is better than the zero forecast by 10.0 % of squared error. "
        "Bars from 2024-01-04 14:00 to 2024-01-05 05:58 UTC, all of them made up."
    )
    assert figures.figures[0].value == "0.9000 ± 0.0100"
    assert table.rows == [
        ["model", "0.9000 ± 0.0100", "0.9000", "0.9000", "–", "0.100", "0.900"],
        ["zero", "1.0000 ± 0.0100", "1.0000", "1.0000", "–", "0.100", "1.000"],
    ]
    assert table.marked == []
    assert isinstance(forecasts, Forecasts)
    assert forecasts.rolls == ["", "", "6EM4"]
    assert said == Text("1 of 2 outcomes lie between 5% and 95%; 2 are to be expected.")


def test_quantiles_and_the_error_by_position_are_tables() -> None:
    coverage, positions, _ = parts(
        evaluation_page("evaluation", evaluation(), None, None), "Quantiles and drift: return"
    )

    assert coverage.rows == [["5%", "0.060 ± 0.010"], ["95%", "0.930"]]
    assert positions.rows == [["960–1,919", "0.9500", "400"]]


def test_a_suspected_leak_is_red_from_the_first_line_on() -> None:
    fault = "leak alarm: a return forecast on real bars must have an MSE ratio of at least 0.98; got 0.9000."
    page = evaluation_page("evaluation", evaluation(leak=True), fault, None)
    html = render(page)

    assert page.passed is False
    assert page.sections[0].parts == [Text(fault, is_wrong=True)]
    assert parts(page, "Next to forecasts that cost nothing: return")[1].marked == [0]
    assert '<header class="bad">' in html
    assert '<span class="result">leak alarm</span>' in html


def test_folds_stand_below_one_another() -> None:
    page = evaluation_page(
        "walk-forward", {"folds": [evaluation(0.9), evaluation(1.1)], "pooled": evaluation()}, None, None
    )

    assert parts(page, "Folds") == [
        Table(
            ("fold", "first bar", "last bar", "MSE ratio, return"),
            [
                ["1", "2024-01-04 14:00", "2024-01-05 05:58", "0.9000 ± 0.0100"],
                ["2", "2024-01-04 14:00", "2024-01-05 05:58", "1.1000 ± 0.0100"],
            ],
        )
    ]
    assert page.title == "mamba2 evaluate: walk-forward"


@pytest.mark.parametrize(("passed", "fault"), [(True, None), (False, "surrogate control: too good")])
def test_the_control_has_a_verdict(passed: bool, fault: str | None) -> None:
    values = {"evaluation": evaluation(), "ratio": 0.9, "passed": passed}
    page = evaluation_page("surrogate", values, fault, None)

    assert page.passed is passed
    assert parts(page, "Control")[0].checks[0].passed is passed


def test_a_roll_is_marked_with_the_new_contract() -> None:
    html = render(evaluation_page("evaluation", evaluation(), None, STRETCH))

    assert html.count("roll to 6EM4") == 2  # in the wide and in the narrow drawing
    assert html.count("a segment begins") == 2  # of the bar before: a roll is not marked twice
