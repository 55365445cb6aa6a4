"""An adapter that claims what it lacks is refused in one line that says what to write."""

import re
from typing import Any

import pytest

from mamba2.errors import ConfigError
from mamba2.verify import Block, Conv, law_tests
from mamba2.verify.implementation import Implementation, check_implementation
from mamba2.verify.targets import load_implementations


class Good(Conv):
    claims = frozenset({"step"})

    def initial_state(self, batch): ...

    def run(self, x, weight, bias, state): ...

    def step(self, x, weight, bias, state): ...


class WithoutClaims(Conv):
    def run(self, x, weight, bias, state): ...


class WithUnknownClaim(Good):
    claims = frozenset({"speed"})


class WithoutStep(Conv):
    claims = frozenset({"step"})

    def initial_state(self, batch): ...

    def run(self, x, weight, bias, state): ...


class WithoutRun(Conv):
    claims = frozenset()

    def initial_state(self, batch): ...


class WithoutStart(Conv):
    claims = frozenset()

    def run(self, x, weight, bias, state): ...


class WithoutWeights(Block):
    claims = frozenset()

    def initial_state(self, batch): ...

    def run(self, u, state): ...


class WithWrongStep(Good):
    def step(self, x, state): ...


@pytest.mark.parametrize(
    ("implementation", "message"),
    [
        (
            WithoutClaims,
            "WithoutClaims: must say what it can do. Write claims = frozenset({…}) with some of: float64, ",
        ),
        (WithUnknownClaim, "WithUnknownClaim: claims must be known; got 'speed'. Choose from: float64, "),
        (
            WithoutStep,
            "WithoutStep: claims 'step', so it must have step. Write def step(self, x, weight, bias, state).",
        ),
        (WithoutRun, "WithoutRun: must have run. Write def run(self, x, weight, bias, state)."),
        (
            WithoutStart,
            "WithoutStart: must have a state to start from, if only None. Write def initial_state(self, batch), or "
            "claim 'initial state'.",
        ),
        (
            WithoutWeights,
            "WithoutWeights: must show its weights, so that it can be judged by the textbook. Write def weights(self), "
            "which gives them by the names in mamba2.verify.reference.",
        ),
        (
            WithWrongStep,
            "WithWrongStep.step: must take (x, weight, bias, state); takes (self, x, state). Write def step(self, x, "
            "weight, bias, state).",
        ),
    ],
)
def test_what_is_missing_is_said(implementation: type[Implementation], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        check_implementation(implementation)


def test_what_is_complete_passes() -> None:
    check_implementation(Good)


def test_tests_are_not_made_of_what_is_incomplete() -> None:
    with pytest.raises(ConfigError, match=r"^WithoutStep: "):
        law_tests(WithoutStep)


def test_ours_are_six() -> None:
    names = list(load_implementations("ours"))

    assert names == [
        "ours.scan_sequential",
        "ours.scan_chunked",
        "ours.conv",
        "ours.block",
        "ours.backbone",
        "ours.forecaster",
    ]


def test_one_of_ours_is_found_by_its_name() -> None:
    assert list(load_implementations("ours.conv")) == ["ours.conv"]


@pytest.fixture
def module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside where the command runs."""
    (tmp_path / "planted_adapter.py").write_text("text = 'no class'\n", encoding="utf-8")
    (tmp_path / "planted_fault.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("theirs", "theirs: must be one of niverel, ours, "),
        ("ours.head", "ours.head: ours has no head. Choose from: scan_sequential, scan_chunked, conv, block, "),
        ("planted_adapter:", "planted_adapter:: must be MODULE:NAME, such as mypackage.adapters:Mine."),
        ("no_such_module:Mine", "no_such_module:Mine: there is no module no_such_module. Install it, or run where it "),
        ("planted_adapter:Mine", "planted_adapter:Mine: planted_adapter has no Mine. Write class Mine(Block) there."),
        (
            "planted_adapter:text",
            "planted_adapter:text: must be a subclass of mamba2.verify's Scan, Conv, Block or Model; got 'no class'.",
        ),
        (
            "planted_fault:Mine",
            "planted_fault:Mine: planted_fault does not import: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_target_that_is_none_is_refused(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        load_implementations(target)
