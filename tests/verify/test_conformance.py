"""The comparison of verdicts with what is known of a release: a missed fault and a false alarm are both said."""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mamba2.verify.adapters.transformers import IMPLEMENTATIONS

FOLDER = Path(__file__).parents[2] / "conformance"
SPEC = importlib.util.spec_from_file_location("conformance_run", FOLDER / "run.py")
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)

FAULT = {"report": "1", "models": ["mamba2"], "since": "5.0.0", "until": "5.9.9", "laws": ["L4"], "also": ["L3"]}


def complaints(release: str, *, drawn: dict[str, str], on_case: str = "wrong") -> list[str]:
    found: dict[str, Any] = {
        "drawn": [
            {"model": "transformers.mamba2", "law": law, "outcome": outcome, "case": "time=2", "why": "is wrong"}
            for law, outcome in drawn.items()
        ],
        "on_cases": [{"report": "1", "model": "mamba2", "said": {"L4": on_case}}],
    }
    return [f"{law} {why}" for _, law, why in run.complaints(release, found, [FAULT])]


def test_a_known_fault_that_is_found_is_right() -> None:
    assert complaints("5.3.0", drawn={"L4": "broken", "L3": "broken", "L2": "holds"}) == []


def test_a_known_fault_that_is_not_found_is_missed() -> None:
    assert complaints("5.3.0", drawn={"L4": "holds"}, on_case="") == [
        "L4 missed: 1 is not seen on its case",
        "L4 missed: no drawn case shows 1",
    ]


def test_what_is_broken_after_it_was_mended_is_a_false_alarm() -> None:
    assert complaints("5.10.0", drawn={"L4": "broken"}) == [
        "L4 false alarm: 1 is mended, but its case says wrong",
        "L4 false alarm: time=2: is wrong",
    ]


def test_what_no_known_fault_breaks_is_a_false_alarm() -> None:
    assert complaints("5.3.0", drawn={"L4": "broken", "L2": "broken"}) == ["L2 false alarm: time=2: is wrong"]


@pytest.mark.parametrize(
    ("release", "beside"),
    [
        ("4.47.1", ["tokenizers~=0.21.0", "huggingface_hub<1"]),
        ("4.57.6", ["tokenizers~=0.22.0", "huggingface_hub<1"]),
        ("5.12.1", ["tokenizers~=0.22.0", "huggingface_hub~=1.0", "httpx<1", "httpcore<2"]),
        ("5.24.0", ["tokenizers~=0.23.0", "huggingface_hub~=1.0", "httpx<1", "httpcore<2"]),
    ],
)
def test_each_release_has_its_own_versions_beside_it(release: str, beside: list[str]) -> None:
    assert run.requirements(release) == [f"transformers=={release}", *beside]


def test_the_table_of_faults_names_only_what_there_is() -> None:
    for fault in tomllib.loads((FOLDER / "faults.toml").read_text(encoding="utf-8"))["fault"]:
        assert set(fault["models"]) <= {*IMPLEMENTATIONS, "all"}, fault["report"]
        assert {*fault["laws"], *fault.get("also", [])} <= {*run.LAWS, "all"}, fault["report"]
        assert run.is_in(fault, fault.get("until", "5.24.0")), fault["report"]
