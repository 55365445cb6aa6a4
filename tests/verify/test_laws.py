"""The law book itself: complete, and its table says what the laws say."""

import re

import pytest

from mamba2.verify import CLAIMS, Case, laws
from mamba2.verify.adapters.ours import CausalConv, Mamba2, ScanChunked
from mamba2.verify.checks import MismatchError
from mamba2.verify.laws import LAWS, Law


def test_there_are_22_laws() -> None:
    assert [law.number for law in LAWS] == sorted([*range(1, 23), 18])


def test_the_table_says_at_which_levels_and_for_whom() -> None:
    head, *rows = re.findall(r"^    (?:law|L\d).*$", laws.__doc__ or "", re.MULTILINE)
    columns = {level: head.index(level) for level in ("scan", "conv", "block", "model")}
    marked = {
        row.split()[0]: {level for level, at in columns.items() if "·" in row[at : at + len(level) + 1]} for row in rows
    }

    assert marked == {law.id: set(law.levels) for law in reversed(LAWS)}


def test_the_table_says_what_has_to_be_claimed() -> None:
    rows = re.findall(r"^    (L\d+)[ ·]+(.*)$", laws.__doc__ or "", re.MULTILINE)
    said = {number: set(re.split(r"  +", text)[0].split(", ")) & CLAIMS.keys() for number, text in rows}

    assert said == {law.id: law.needs for law in reversed(LAWS)}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_has_a_statement_and_needs_what_can_be_claimed(law: Law) -> None:
    assert law.statement.endswith(".")
    assert law.needs <= CLAIMS.keys()
    assert getattr(laws, law.name) is law


def test_what_is_not_claimed_is_said() -> None:
    class Stateless(ScanChunked):
        claims = frozenset({"step"})

    assert laws.stopping_and_going_on_changes_nothing.missing(Stateless) == "not claimed: resume, state"
    assert laws.a_run_is_a_prefill_and_then_steps.missing(Stateless) is None


def test_a_law_without_content_at_a_level_says_so() -> None:
    assert laws.the_chunk_changes_nothing.missing(CausalConv) == "has no content at the level conv"


def test_a_law_is_a_function_of_an_implementation_and_a_case() -> None:
    class Doubled(Mamba2):
        def run(self, u, state):
            y, state = super().run(u, state)
            return 2 * y, state

    laws.a_run_is_the_textbook(Mamba2, Case(time=2))
    with pytest.raises(MismatchError, match=r"^outputs beside the textbook: error 1.0e\+00 is above 1e-10; worst at "):
        laws.a_run_is_the_textbook(Doubled, Case(time=2))
