"""The laws bite: each rejects what was once shipped broken, for what is broken in it and nothing else."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings

from mamba2.verify.adapters import ours
from mamba2.verify.case import Case
from mamba2.verify.draw import MUCH, cases, fixed_cases
from mamba2.verify.implementation import Implementation
from mamba2.verify.laws import LAWS, Law

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "mutants.md"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


mutants = load(HERE / "mutants.py")

PAIRS = [
    pytest.param(law, mutant.implementation, id=f"{law.id}-{mutant.implementation.__name__}")
    for mutant in mutants.MUTANTS
    for law in mutant.breaks
]


def is_broken(law: Law, implementation: type[Implementation], case: Case) -> bool:
    try:
        law(implementation, case)
    except Exception:
        return True
    return False


def counterexample(law: Law, implementation: type[Implementation]) -> Case:
    """One of the cases that are always tried, else the first that is drawn."""
    for case in fixed_cases(law, implementation):
        if is_broken(law, implementation, case):
            return case
    few = settings(
        max_examples=law.examples(implementation, 600),
        phases=(Phase.generate,),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return find(cases(law, implementation), lambda case: is_broken(law, implementation, case), settings=few)


@pytest.mark.parametrize(("law", "implementation"), PAIRS)
def test_a_mutant_is_rejected_where_what_it_is_made_from_is_not(law: Law, implementation: type[Implementation]) -> None:
    case = counterexample(law, implementation)

    law(implementation.__bases__[0], case)


@pytest.mark.parametrize(
    ("law", "implementation"),
    [
        pytest.param(law, implementation, id=f"{law.id}-{law.name}-{name}")
        for name, implementation in {**ours.IMPLEMENTATIONS, "pieces": mutants.Pieces}.items()
        for law in LAWS
        if law.missing(implementation) is None and law.cost <= MUCH  # property_tests/ compile too
    ],
)
def test_ours_is_accepted(law: Law, implementation: type[Implementation]) -> None:
    for case in fixed_cases(law, implementation):
        law(implementation, case)


def test_every_law_rejects_two_mutants_or_more() -> None:
    rejected = {law.number: 0 for law in LAWS}
    for mutant in mutants.MUTANTS:
        for law in mutant.breaks:
            rejected[law.number] += 1

    assert min(rejected.values()) >= 2, rejected


def test_the_page_lists_every_mutant() -> None:
    listed = sorted(line.split(" | ")[:3] for line in PAGE.read_text(encoding="utf-8").splitlines() if "| L" in line)
    expected = sorted(
        [f"| {law.id}", ", ".join(map(mutants.title, mutant.reports)), mutant.fault]
        for mutant in mutants.MUTANTS
        for law in mutant.breaks
    )

    assert listed == expected
