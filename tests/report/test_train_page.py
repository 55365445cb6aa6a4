"""The page of a training run, from plain values, in every state a run can end in."""

from typing import Any

import pytest

from mamba2.config import RunConfig
from mamba2.report.losses import POINTS, step_curve
from mamba2.report.model_flow import forecaster_flow
from mamba2.report.page import render
from mamba2.report.parts import Curve, Page, Text
from mamba2.report.train_page import Seen, train_page

SEEN = Seen(forecaster_flow(RunConfig(), 32), "[model]\nd_model = 8\n", [2.0, 1.0, 1.5, 0.5], [3.0, 2.0, 1.0, 0.5])


def epoch(number: int, train: float, validation: float | None) -> dict[str, Any]:
    losses = {"train_loss": train, "validation_loss": validation}
    return {"epoch": number, **losses, "seconds": 2.0, "checkpoint": f"epoch-{number:03d}"}


def report(**changes: Any) -> dict[str, Any]:
    """Of a run of two epochs of two steps each."""
    data = {"digest": "f" * 64, "files": ["a.dbn", "b.dbn"], "messages": 9000, "bars": 5000}
    base: dict[str, Any] = {
        "run": "first",
        "outcome": "finished",
        "fault": None,
        "step": 4,
        "steps": 4,
        "of_epochs": 2,
        "epochs": [epoch(1, 1.5, 1.25), epoch(2, 1.0, 1.3)],
        "best": 1,
        "bars_per_second": 1234.5,
        "data": data | {"sequences": 12, "train_sequences": 9, "validation_sequences": 3},
        "parameters": 4514,
        "versions": {"python": "3.11.7"},
        "git": {"commit": "abcdef0123456789", "changed": False},
        "device": "cpu",
        "peak_memory": 3 * 2**20,
    }
    return base | changes


def parts(page: Page, title: str) -> list[Any]:
    return list(next(section.parts for section in page.sections if section.title == title))


def facts(page: Page) -> dict[str, tuple[bool | None, str]]:
    return {check.name: (check.passed, check.detail) for check in parts(page, "Facts")[0].checks}


def test_a_finished_run_shows_losses_throughput_memory_shapes_and_settings() -> None:
    page = train_page(report(), SEEN)
    loss, table = parts(page, "Loss")
    values = [figure.value for figure in parts(page, "In numbers")[0].figures]

    assert (page.title, page.passed) == ("mamba2 train: first", True)
    assert page.summary == "All 2 epochs are done, on cpu."
    assert loss.curves == [
        Curve("training, each step", [0.5, 1.0, 1.5, 2.0], [2.0, 1.0, 1.5, 0.5], "thin"),
        Curve("validation", (1, 2), (1.25, 1.3), "thick"),
    ]
    assert [row[0] for row in table.rows] == ["1, the best", "2"]
    assert values == ["1,234", "3 MiB", "4,514", "5,000 of 9,000", "9 + 3"]
    assert parts(page, "Shapes, from bars to forecast") == [SEEN.flow]
    assert parts(page, "Settings")[0].text == SEEN.settings
    assert facts(page)["validation loss"] == (True, "lowest in epoch 1: 1.2500; 1.3000 in the last")
    assert facts(page)["code"] == (True, "commit abcdef012345")


def test_a_stopped_run_has_no_verdict_and_says_how_to_go_on() -> None:
    page = train_page(report(outcome="stopped", step=3, epochs=[epoch(1, 1.5, 1.25)]), SEEN)

    assert page.passed is None
    assert page.summary == "Stopped after step 3 of 4 on cpu; the same command with --resume goes on."
    assert facts(page)["all steps"] == (None, "3 of 4 steps, 1 of 2 epochs")
    assert "training loss fell" not in facts(page)


def test_a_failed_run_begins_with_its_error() -> None:
    fault = "training: step 3: the loss is nan; first in the gradient of head."
    page = train_page(report(outcome="failed", fault=fault, step=2, epochs=[epoch(1, 1.5, None)], best=None), SEEN)
    html = render(page)

    assert page.sections[0].parts == [Text(fault, is_wrong=True)]
    assert facts(page)["finite"] == (False, fault)
    assert facts(page)["validation loss"][0] is None
    assert '<span class="result">failed</span>' in html


def test_a_run_that_ends_before_its_first_step_has_no_charts() -> None:
    page = train_page(
        report(outcome="failed", fault="x", step=0, steps=0, epochs=[], best=None, bars_per_second=None),
        SEEN._replace(losses=[], norms=[]),
    )

    assert [section.title for section in page.sections][:3] == ["What went wrong", "Facts", "In numbers"]
    assert "Loss" not in [section.title for section in page.sections]


def test_a_loss_that_rises_over_the_epochs_is_said_to() -> None:
    page = train_page(report(epochs=[epoch(1, 1.0, 1.0), epoch(2, 1.5, 1.0)]), SEEN)

    assert facts(page)["training loss fell"] == (False, "1.0000 in the first epoch, 1.5000 in the last")


@pytest.mark.parametrize("changed", [True, False, None])
def test_code_that_no_commit_holds_is_not_called_good(changed: bool | None) -> None:
    git = None if changed is None else {"commit": "abcdef0123456789", "changed": changed}

    assert facts(train_page(report(git=git), SEEN))["code"][0] is (True if changed is False else None)


def test_a_long_curve_is_drawn_as_means_that_keep_its_mean_and_end() -> None:
    values = [float(value % 7) for value in range(4 * POINTS)]
    curve = step_curve("training", values, 100)

    assert (curve.label, len(curve.y)) == ("training, means of 4 steps", POINTS)
    assert sum(curve.y) / POINTS == pytest.approx(sum(values) / len(values))
    assert (curve.x[0], curve.x[-1]) == (0.04, len(values) / 100)
    assert step_curve("training", values[: POINTS + 1], 100).x[-1] == (POINTS + 1) / 100
