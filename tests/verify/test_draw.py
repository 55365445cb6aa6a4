"""What is drawn, and what is tried to make it smaller: every case is one that a law may be asked about."""

from dataclasses import fields

import pytest

from mamba2.verify import Case, laws
from mamba2.verify.adapters.ours import CausalConv, Mamba2
from mamba2.verify.draw import simpler

LARGE = Case(
    batch=3,
    time=7,
    group=2,
    head=6,
    channel=3,
    state=5,
    width=4,
    chunk=9,
    expand=3,
    cuts=(2, 5),
    dt_range=(0.3, 1.0),
    bias=True,
    conv_bias=True,
    norm="none",
    dtype="float32",
    seed=8,
)


def simpler_ones(name, case=LARGE, law=laws.a_run_is_the_textbook, implementation=Mamba2) -> list[Case]:
    return list(simpler(case, name, law, implementation))


def test_each_field_has_a_simpler_case_but_the_dtype():
    without = {field.name for field in fields(Case) if not simpler_ones(field.name)}

    assert without == {"dtype", "layers", "D", "values", "pad"}  # the last four are the least already


def test_the_width_of_a_model_stays_a_whole_number():
    assert [(each.head, each.expand) for each in simpler_ones("head")] == [(2, 3)]
    assert [(each.channel, each.expand) for each in simpler_ones("channel")] == [(1, 3)]
    (fewer,) = simpler_ones("head", Case(head=3, channel=2, expand=3))
    assert (fewer.head, fewer.channel, fewer.expand, fewer.config.d_model) == (1, 2, 1, 2)


def test_cuts_stay_within_the_time():
    assert [(each.time, each.cuts) for each in simpler_ones("time")] == [
        (1, ()),
        (2, (2,)),
        (3, (2,)),
        (4, (2,)),
        (5, (2, 5)),
        (6, (2, 5)),
    ]
    assert [each.cuts for each in simpler_ones("cuts")] == [(), (1,), (2,), (5,)]


@pytest.mark.parametrize("cuts", [(), (1,), (4,)])
def test_fewer_cuts_are_never_as_many_again(cuts):
    case = Case(time=7, cuts=cuts)

    assert all((len(each.cuts), each.cuts) < (len(cuts), cuts) for each in simpler_ones("cuts", case))


def test_what_a_law_or_an_implementation_needs_is_kept():
    class AlwaysWithBias(Mamba2):
        claims = Mamba2.claims - {"no conv_bias"}

    assert simpler_ones("group", law=laws.head_h_reads_group_h_G_over_H) == []
    assert simpler_ones("conv_bias", implementation=AlwaysWithBias) == []
    assert simpler_ones("batch", Case(batch=0), implementation=CausalConv) == []
