"""The runner: what is right holds, and of what is wrong the smallest counterexample is found."""

import json
import sys
import textwrap
from types import SimpleNamespace

import pytest
import torch

from mamba2.ops.scan import scan_chunked
from mamba2.verify import Case, laws
from mamba2.verify.adapters.ours import CausalConv, ScanChunked
from mamba2.verify.runner import Verdict, judge, verify
from mamba2.verify.table import details


class ForgetsTheState(ScanChunked):
    """Each call starts from zero, as when a cached run of many steps is taken for a first one."""

    def run(self, x, dt, A, B, C, state):
        return scan_chunked(x * dt[..., None], dt * A, B, C, torch.zeros_like(state), chunk=self.chunk)


class LosesStatesBetweenChunks(ScanChunked):
    """Right within one chunk."""

    def run(self, x, dt, A, B, C, state):
        outputs = []
        for t in range(0, x.shape[1], self.chunk):
            part = [each[:, t : t + self.chunk] for each in (x * dt[..., None], dt * A, B, C)]
            y, state = scan_chunked(*part, state, chunk=self.chunk)
            outputs.append(y)
            state = 0 * state
        return torch.cat(outputs, dim=1) if outputs else x, state


class TakesAConstantBForOne(ScanChunked):
    """Where B does not change, the state that is given back has 1 in its place."""

    def run(self, x, dt, A, B, C, state):
        y, after = super().run(x, dt, A, B, C, state)
        constant = bool((B - B[:, :1] == 0).all())
        return y, super().run(x, dt, A, torch.ones_like(B), C, state)[1] if constant else after


class ForgetsTheBatch(ScanChunked):
    """Of B and C only the first sequence, as in the run that this project began with."""

    def run(self, x, dt, A, B, C, state):
        return super().run(x, dt, A, B[:1], C[:1], state)


def judged(law, implementation) -> Verdict:
    return judge(law, implementation, target="planted", examples=50)


def test_what_is_right_holds() -> None:
    verdict = judged(laws.a_run_is_the_textbook, CausalConv)

    assert (verdict.outcome, verdict.case, verdict.examples) == ("holds", None, 57)


def test_what_is_not_claimed_is_not_judged() -> None:
    verdict = judged(laws.offsets_have_64_bits, CausalConv)

    assert (verdict.outcome, verdict.why, verdict.examples) == ("not claimed", "not claimed: offsets", 0)


def test_the_smallest_counterexample_is_found_with_its_error() -> None:
    verdict = judged(laws.stopping_and_going_on_changes_nothing, ForgetsTheState)

    assert verdict.outcome == "broken"
    assert verdict.case == Case(cuts=(1,))
    assert verdict.why.startswith("state ssm stopped at 1: error ")
    assert (verdict.error > 0.01, verdict.allowed) == (True, 1e-10)


def test_a_fault_at_chunk_borders_shrinks_to_two_chunks_of_one_step() -> None:
    verdict = judged(laws.the_past_does_not_see_the_future, LosesStatesBetweenChunks)
    wrong = judged(laws.the_chunk_changes_nothing, LosesStatesBetweenChunks)

    assert verdict.outcome == "holds"
    assert (wrong.outcome, wrong.case.batch, wrong.case.time, wrong.case.chunk) == ("broken", 1, 2, 1)


def test_sizes_that_are_drawn_different_do_not_stay_so() -> None:
    verdict = judge(laws.stopping_and_going_on_changes_nothing, TakesAConstantBForOne, target="planted", examples=1000)

    assert verdict.case == Case(time=2, cuts=(1,))


def test_a_shape_error_shrinks_to_two_empty_sequences_and_is_kept_whole() -> None:
    verdict = judged(laws.shapes_follow_from_the_sizes_alone, ForgetsTheBatch)

    assert (verdict.outcome, verdict.case) == ("broken", Case(batch=2, time=0))
    assert verdict.why.startswith("raised ShapeError: scan_chunked: axis 'batch' is 1 in B ")
    assert verdict.raised.startswith("ShapeError: scan_chunked: axis 'batch' is 1 in B ")
    assert "    batch  2 (from x)  1 <--\n" in verdict.raised
    assert verdict.as_json()["sizes"]["batch"] == 2


def test_an_error_of_the_implementation_is_a_broken_law() -> None:
    class Raises(CausalConv):
        def run(self, *_):
            raise RuntimeError("view size is not compatible")

    verdict = judged(laws.a_run_is_the_textbook, Raises)

    assert (verdict.outcome, verdict.why, verdict.error) == (
        "broken",
        "raised RuntimeError: view size is not compatible",
        None,
    )


def test_the_test_to_paste_fails_as_long_as_the_law_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(laws.stopping_and_going_on_changes_nothing, ForgetsTheState)
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(ForgetsTheState=ForgetsTheState))
    names: dict = {}
    exec(verdict.test, names)

    assert textwrap.indent(verdict.test, "    ") in details(verdict)
    with pytest.raises(AssertionError, match=r"^state ssm stopped at 1: "):
        names["test_stopping_and_going_on_changes_nothing"]()


def test_verdicts_are_plain_values() -> None:
    verdicts = list(verify({"mine": ForgetsTheState}, examples=20, laws=[laws.stopping_and_going_on_changes_nothing]))
    (found,) = json.loads(json.dumps([each.as_json() for each in verdicts]))

    assert found["outcome"] == "broken"
    assert found["counterexample"].startswith("batch=1 time=1")
    assert (found["implementation"], found["law"], found["level"]) == ("mine", "L4", "scan")
