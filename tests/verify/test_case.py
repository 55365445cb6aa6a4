"""A case says what matters in words and in code, and gives the same numbers again."""

import math
from dataclasses import fields

import pytest
import torch

from mamba2.verify import Case
from mamba2.verify.adapters.ours import Mamba2, ScanChunked
from mamba2.verify.trial import Trial

ALL = Case(
    batch=2, time=5, group=2, head=4, channel=3, cuts=(1,), dt_range=(0.5, math.inf), pad=math.inf, dtype="float32"
)


def test_in_words_only_what_is_not_the_smallest_is_named() -> None:
    assert str(ALL) == ("batch=2 time=5 group=2 head=4 channel=3 cuts=1 dt_range=0.5,inf dtype=float32 pad=inf")


def test_a_person_reads_every_field_that_matters() -> None:
    words = Case(
        width=4,
        cuts=(1, 3),
        dt_range=(0.5, 1.0),
        bias=True,
        D="channel",
        norm="before gate",
        values="huge steps",
        seed=7,
    ).in_words

    assert words == (
        "1 sequence of 1 step, a convolution over 4 steps, cut after 1,3 steps, dt within 0.5,1.0, biases on the "
        "projections, D: channel, norm: before gate, huge steps, random numbers of seed 7; all else is 1 or left out"
    )
    every = Case(**{each.name: 2 if each.type is int else "x" for each in fields(Case)})
    assert every.in_words.count(", ") == len(fields(Case)) - 2


def test_in_code_it_gives_itself_again() -> None:
    assert eval(repr(ALL), {"Case": Case}) == ALL


def test_its_config_has_the_sizes_in_the_papers_words() -> None:
    config = Case(group=2, head=4, channel=3, state=5, width=2, expand=2).config

    sizes = (config.d_model, config.d_inner, config.headdim, config.n_heads, config.n_groups, config.d_xBC)
    assert sizes == (6, 12, 3, 4, 2, 12 + 2 * 2 * 5)


@pytest.mark.parametrize(
    ("cuts", "parts"), [((), [(0, 5)]), ((2,), [(0, 2), (2, 5)]), ((0, 2, 2), [(0, 0), (0, 2), (2, 2), (2, 5)])]
)
def test_cuts_part_the_time(cuts: tuple[int, ...], parts: list[tuple[int, int]]) -> None:
    assert list(Case(time=5, cuts=cuts).parts) == parts


def test_a_name_that_is_no_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^Case: dtype must be the name of a torch dtype; got 'nn'\.$"):
        Case(dtype="nn").torch_dtype  # noqa: B018


def test_the_same_case_is_the_same_numbers() -> None:
    case = Case(batch=2, time=3, head=2, seed=5)
    one, other = Trial(Mamba2, case), Trial(Mamba2, case)

    assert torch.equal(one.run().outputs, other.run().outputs)
    assert not torch.equal(one.inputs[0], Trial(Mamba2, Case(batch=2, time=3, head=2, seed=6)).inputs[0])


def test_huge_steps_are_huge() -> None:
    dt = Trial(ScanChunked, Case(time=3, values="huge steps", seed=1)).inputs[1]

    assert dt.flatten().tolist() == [1e-2, 1e4, 1e-2]
