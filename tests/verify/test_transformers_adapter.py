"""transformers through its adapter: what is right holds, and what is known to be wrong is found, and where."""

import pytest
import torch

from mamba2.errors import ConfigError
from mamba2.verify import Case, laws
from mamba2.verify.adapters import transformers
from mamba2.verify.checks import MismatchError
from mamba2.verify.implementation import check_implementation
from mamba2.verify.runner import judge
from mamba2.verify.targets import load_implementations

RIGHT = (
    laws.shapes_follow_from_the_sizes_alone,
    laws.a_run_is_the_textbook,
    laws.a_run_is_a_prefill_and_then_steps,
    laws.stopping_and_going_on_changes_nothing,
    laws.the_past_does_not_see_the_future,
    laws.head_h_reads_group_h_G_over_H,
    laws.a_state_is_a_value,
)
CASE = Case(
    batch=2, time=5, group=2, head=4, channel=3, state=2, width=4, chunk=2, cuts=(2, 3), conv_bias=True, dtype="float32"
)


@pytest.mark.parametrize("name", transformers.IMPLEMENTATIONS)
def test_an_adapter_can_do_what_it_claims(name: str) -> None:
    check_implementation(transformers.IMPLEMENTATIONS[name])


@pytest.mark.parametrize("name", [name for name in transformers.IMPLEMENTATIONS if not name.endswith("_limits")])
def test_what_is_right_is_no_false_alarm(name: str) -> None:
    for law in RIGHT:
        law(transformers.IMPLEMENTATIONS[name], CASE)


def test_gradients_where_the_textbook_itself_loses_digits_are_no_false_alarm() -> None:
    case = Case(batch=7, time=9, group=4, head=8, channel=3, state=2, width=4, dtype="float32", values="huge steps")

    laws.gradients_are_the_textbooks(transformers.Mamba2, case)


def test_limits_of_dt_that_a_step_forgets_are_found_with_the_smallest_case() -> None:
    verdict = judge(
        laws.dt_is_softplus_then_limits_once_on_every_path, transformers.Mamba2Limits, target="limits", examples=30
    )

    assert verdict.outcome == "broken"
    assert verdict.why.startswith("outputs with dt limited, step by step: error ")
    # A first step is a prefill, so it takes two to see it.
    assert (verdict.case.batch, verdict.case.time, verdict.case.head) == (1, 2, 1)
    assert verdict.case.dt_range != (0.0, float("inf"))


@pytest.mark.parametrize(
    ("law", "name", "case", "message"),
    [
        (
            laws.pads_are_as_if_they_were_not_there,
            "mamba2",
            Case(time=2, dtype="float32", seed=1744),
            r"state ssm of row 0 with pads \[1\]: error",
        ),
        (
            laws.dt_is_softplus_then_limits_once_on_every_path,
            "nemotron_h_limits",
            Case(time=2, dtype="float32", values="small steps", seed=1),
            "outputs with dt limited: error",
        ),
        (
            laws.saving_and_loading_changes_nothing,
            "nemotron_h_lm",
            Case(time=2, dtype="float32"),
            "tied tensors: are two storages",
        ),
        (
            laws.gradients_are_the_textbooks,
            "mamba2",
            Case(
                batch=2,
                time=9,
                group=4,
                head=8,
                channel=3,
                state=5,
                width=5,
                chunk=2,
                conv_bias=True,
                dtype="float32",
                values="huge steps",
                seed=252,
            ),
            r"gradient of u of a run: error 5\..e-03 is above 1e-04",
        ),
    ],
    ids=[
        "a pad to the right decays the state",
        "a limit that is configured is ignored",
        "what is said to be tied is not",
        "small steps after a huge one are lost",
    ],
)
def test_an_open_fault_is_found(law: laws.Law, name: str, case: Case, message: str) -> None:
    with pytest.raises(MismatchError, match=message):
        law(transformers.IMPLEMENTATIONS[name], case)


def test_a_cache_that_was_gone_on_from_is_as_before() -> None:
    mixer = transformers.Mamba2(CASE.config)
    u = torch.randn(2, 3, CASE.config.d_model)
    _, state = mixer.run(u, None)
    before = {name: each.clone() for name, each in mixer.read_state(state).items()}

    mixer.step(u[:, :1], state)

    after = mixer.read_state(state)
    assert all(torch.equal(after[name], each) for name, each in before.items())


def test_one_mixer_can_be_chosen_by_name() -> None:
    assert load_implementations("transformers.bamba") == {"transformers.bamba": transformers.Bamba}
    with pytest.raises(ConfigError, match="transformers has no mamba3"):
        load_implementations("transformers.mamba3")
