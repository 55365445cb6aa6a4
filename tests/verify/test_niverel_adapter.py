"""niverel-mamba through its adapter: what is right holds, and what is wrong with it is found, and where."""

import sys

import pytest

from mamba2.errors import ConfigError
from mamba2.verify import Case, laws
from mamba2.verify.adapters import niverel
from mamba2.verify.checks import MismatchError
from mamba2.verify.implementation import Implementation
from mamba2.verify.laws import Law
from mamba2.verify.targets import load_implementations

RIGHT = (
    laws.shapes_follow_from_the_sizes_alone,
    laws.a_run_is_the_textbook,
    laws.a_run_is_a_prefill_and_then_steps,
    laws.stopping_and_going_on_changes_nothing,
    laws.packed_sequences_do_not_know_of_each_other,
    laws.head_h_reads_group_h_G_over_H,
    laws.dt_is_softplus_then_limits_once_on_every_path,
    laws.gradients_are_the_textbooks,
    laws.a_state_is_a_value,
)
CASE = Case(
    batch=2, time=5, group=2, head=4, channel=3, state=2, width=4, chunk=2, cuts=(2,), dtype="float32", D="channel"
)
HUGE_STEP = Case(
    batch=2, time=9, group=4, head=8, channel=3, state=5, width=5, dtype="float32", values="huge steps", seed=252
)


@pytest.mark.parametrize(
    ("law", "implementation"),
    [
        pytest.param(law, each, id=f"{law.id}-{name}")
        for name, each in niverel.IMPLEMENTATIONS.items()
        for law in RIGHT
        if law.missing(each) is None
    ],
)
def test_what_is_right_is_no_false_alarm(law: Law, implementation: type[Implementation]) -> None:
    law(implementation, CASE)


def test_a_range_of_one_dt_is_that_dt() -> None:
    laws.dt_is_softplus_then_limits_once_on_every_path(
        niverel.Mamba2, Case(time=3, dt_range=(0.5, 0.5), dtype="float32")
    )


def test_small_steps_that_are_lost_after_a_huge_one_are_found() -> None:
    with pytest.raises(MismatchError, match=r"^outputs beside the textbook: error \d\.\de-03 is above 1e-04"):
        laws.precision_is_that_of_the_dtype(niverel.Mamba2, HUGE_STEP)


def test_a_run_of_no_steps_that_is_refused_by_no_name_is_found() -> None:
    with pytest.raises(IndexError):
        laws.the_smallest_sizes_work_or_are_refused(niverel.Mamba2, Case(time=0, dtype="float32"))


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, niverel.__name__)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigError) as refused:
        load_implementations("niverel")

    assert str(refused.value) == (
        "niverel: mamba2.verify.adapters.niverel does not import: ImportError: niverel-mamba is missing. Write python "
        "-m pip install niverel-mamba."
    )


def test_both_are_found_by_name() -> None:
    assert load_implementations("niverel") == {"niverel.mamba2": niverel.Mamba2, "niverel.steps": niverel.Steps}
    with pytest.raises(ConfigError, match="niverel has no mamba3"):
        load_implementations("niverel.mamba3")
