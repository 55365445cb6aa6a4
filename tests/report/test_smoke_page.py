"""The smoke test's page, from plain values, in every state a run can end in."""

from typing import Any

import pytest

from mamba2.config import RunConfig
from mamba2.report.model_flow import forecaster_flow
from mamba2.report.parts import Curve, Curves, Figures, Forecasts, Page, Table, Text
from mamba2.report.smoke_page import Seen, smoke_page

FORECASTS = Forecasts(
    time=[0, 1], starts=[False, False], actual=[0.0, 3.0], levels=[0.05, 0.95], quantiles=[[-1, -1], [1, 1]], y_label=""
)


def report(detail: str = "", **changes: Any) -> dict[str, Any]:
    """A report of three checks, of which the second fails where there is a detail."""
    ran = {"seconds": 0.5, "passed": True, "detail": "fine"}
    checks = [{"name": "imports", **ran}, {"name": "first batch", **ran}, {"name": "checkpoints", **ran}]
    if detail:
        checks[1] |= {"passed": False, "detail": detail}
        checks[2] |= {"passed": None, "detail": "not run", "seconds": 0.0}
    base: dict[str, Any] = {"passed": not detail, "checks": checks, "data": {}, "model": {}, "epochs": []}
    return base | {"validation_loss_before": None, "device": "cpu", "versions": {"python": "3.11.7"}} | changes


def epoch(number: int, train: float, validation: float | None) -> dict[str, Any]:
    return {
        "epoch": number,
        "train_loss": train,
        "validation_loss": validation,
        "seconds": 2.0,
        "checkpoint": f"runs/epoch-{number:03d}",
    }


@pytest.fixture
def seen() -> Seen:
    """Nothing but the model's shapes."""
    return Seen(forecaster_flow(RunConfig(), 32))


def parts(page: Page, title: str) -> list[Any]:
    return list(next(section.parts for section in page.sections if section.title == title))


def titles(page: Page) -> list[str]:
    return [section.title for section in page.sections]


def test_a_passed_run_shows_losses_forecasts_speed_and_memory(seen: Seen) -> None:
    ran = report(epochs=[epoch(1, 2.0, 1.5), epoch(2, 1.0, 1.25)], validation_loss_before=3.0)
    seen = seen._replace(losses=[2.5, 1.5, 1.25, 0.75], bars=4000, peak_memory=3 * 2**20, forecasts=FORECASTS)
    page = smoke_page(ran, seen)
    curves, table = parts(page, "Loss")
    figures = {figure.label: figure.value for figure in parts(page, "In numbers")[0].figures}

    assert (page.passed, page.summary) == (True, "3 of 3 checks held, in 1.5 s on cpu.")
    assert titles(page)[-2:] == ["Shapes, from bars to forecast", "Versions"]
    assert curves.curves == [
        Curve("training, each step", [0.5, 1.0, 1.5, 2.0], [2.5, 1.5, 1.25, 0.75], "thin"),
        Curve("validation", (1, 2), (1.5, 1.25), "thick"),
        Curve("validation, untrained", [0.0], [3.0], "level"),
    ]
    assert table.rows[1] == ["2", "1.0000", "1.2500", "2.0 s", "epoch-002"]
    assert figures["bars a second, validation and checkpoints included"] == "1,000"
    assert figures["memory at its peak"] == "3 MiB"
    assert figures["validation loss, untrained → trained"] == "3.000 → 1.250"
    assert parts(page, "Forecasts against what happened") == [
        FORECASTS,
        Text("1 of 2 outcomes lie between 5% and 95%; 2 are to be expected."),
    ]


def test_without_validation_there_is_no_such_curve(seen: Seen) -> None:
    page = smoke_page(report(epochs=[epoch(1, 2.0, None)]), seen._replace(losses=[2.0]))
    curves, table = parts(page, "Loss")

    assert isinstance(curves, Curves)
    assert [curve.label for curve in curves.curves] == ["training, each step"]
    assert table.rows == [["1", "2.0000", "none", "2.0 s", "epoch-001"]]


def test_a_shape_error_comes_first_and_its_box_right_after_the_checks(seen: Seen) -> None:
    page = smoke_page(report("ShapeError: scan_step: axis 'state' is 8 in C (2, 8) but 16 in B (2, 16)."), seen)
    flow = parts(page, "Shapes, from bars to forecast")[0]

    assert page.passed is False
    assert titles(page)[:3] == ["What went wrong: first batch", "Checks", "Shapes, from bars to forecast"]
    assert [box.name for group in flow.groups for box in group.boxes if box.fault] == ["scan_chunked"]


def test_another_error_marks_the_innermost_function_that_is_drawn(seen: Seen) -> None:
    functions = ["_run", "Forecaster._run", "Mamba2Block._run", "scan_chunked", "einsum"]
    page = smoke_page(report("RuntimeError: no memory"), seen._replace(functions=functions))
    flow = parts(page, "Shapes, from bars to forecast")[0]

    assert [box.fault.sentence for group in flow.groups for box in group.boxes if box.fault] == [
        "RuntimeError: no memory"
    ]
    assert [box.name for group in flow.groups for box in group.boxes if box.fault] == ["scan_chunked"]


def test_an_error_elsewhere_leaves_the_shapes_below(seen: Seen) -> None:
    page = smoke_page(report("DataError: day.dbn: no such file"), seen._replace(functions=["load_bars"]))

    assert titles(page) == ["What went wrong: first batch", "Checks", "Shapes, from bars to forecast", "Versions"]
    assert parts(page, "What went wrong: first batch") == [Text("DataError: day.dbn: no such file", is_wrong=True)]
    assert parts(page, "Shapes, from bars to forecast") == [seen.flow]


def test_data_are_counted(seen: Seen) -> None:
    data = {"bars": 5460, "messages": 7223, "train_sequences": 43, "validation_sequences": 11}
    shown = parts(smoke_page(report(data=data, model={"parameters": 12345}), seen), "In numbers")[0]

    assert isinstance(shown, Figures)
    assert [figure.value for figure in shown.figures] == ["12,345", "5,460 of 7,223", "43 + 11"]


def test_versions_are_listed(seen: Seen) -> None:
    assert parts(smoke_page(report(), seen), "Versions") == [Table(("package", "version"), [["python", "3.11.7"]])]
