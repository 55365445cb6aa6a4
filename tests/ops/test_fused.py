"""The fast form: how it cuts a call, what it says of wrong sizes, and when a block does without it."""

import math
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model import block as room
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.choice import why_composed, why_composed_step, why_never_fused
from mamba2.ops.fused import mixer
from mamba2.ops.fused.conv import conv_backward, conv_forward
from mamba2.ops.fused.gate import gate_forward
from mamba2.ops.fused.mixer import fused_mixer
from mamba2.ops.fused.plan import Plan, make_plan, tiles
from mamba2.ops.fused.scan import scan_backward, scan_forward
from mamba2.ops.fused.tile import State
from mamba2.ops.scan import scan_sequential
from mamba2.verify.strategies import Source

CONFIG = ModelConfig(d_model=4, d_state=2, headdim=2, d_conv=3)


@pytest.fixture
def block() -> Mamba2Block:
    torch.manual_seed(0)
    return Mamba2Block(CONFIG)


def reason(block: Mamba2Block, u: torch.Tensor, state: BlockState, mask: torch.Tensor | None = None) -> str | None:
    return why_composed(u, state, mask, block._sizes(2), block)


def test_a_short_sequence_is_one_chunk_and_many_rows_share_a_tile():
    plan = make_plan(60, 16)

    assert plan.chunk == 60
    assert [rows for rows, _ in tiles(plan._replace(tile=120), 5, 60)] == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_a_tile_holds_at_least_one_chunk():
    ((_, spans),) = tiles(Plan(tile=3, chunk=4), 1, 8)

    assert spans == [(0, 4, 4), (4, 8, 4)]


@pytest.mark.parametrize(("time", "d_state", "chunk"), [(96, 16, 96), (97, 127, 32), (97, 128, 64)])
def test_the_chunk_changes_where_it_was_measured_to(time, d_state, chunk):
    assert make_plan(time, d_state).chunk == chunk


def test_every_step_is_in_one_whole_chunk_of_one_span():
    ((_, spans),) = tiles(Plan(tile=64, chunk=32), 1, 150)

    assert [each[:2] for each in spans] == [(0, 64), (64, 128), (128, 150)]
    assert all((stop - start) % chunk == 0 for start, stop, chunk in spans)


def test_the_convolution_and_its_derivative_on_numbers_done_by_hand():
    x, weight, past = torch.tensor([[[3.0], [4.0]]]), torch.tensor([[10.0, 1.0]]), torch.tensor([[[2.0]]])

    y = conv_forward(x, weight, torch.tensor([0.5]), past)
    dx, dweight, dbias, dpast = conv_backward(x, weight, past, torch.tensor([[[1.0], [100.0], [0.0]]]))

    assert y.flatten().tolist() == [23.5, 34.5]
    assert (dx.flatten().tolist(), dweight.tolist()) == ([1001.0, 100.0], [[302.0, 403.0]])
    assert (dbias.item(), dpast.item()) == (101.0, 10.0)


def test_a_step_that_forgets_everything_leaves_those_after_it_as_they_are():
    dt = torch.tensor([1e25, 1.0, 1e25, 1.0]).reshape(1, 1, 1, 4)
    one = torch.ones(1, 1, 1, 4, 1)

    y, state, _ = scan_forward(
        one / dt[..., None], dt, torch.tensor([-math.log(2.0)]), one, one, None, None, keep=False
    )

    assert y.flatten().tolist() == pytest.approx([1.0, 1.5, 1.0, 1.5], rel=1e-5)
    assert state.item() == pytest.approx(1.5)


@pytest.mark.parametrize("decay", [-0.6, -1e-3])
def test_gradients_do_not_see_what_a_step_forgot(decay):
    source = Source(1)
    dt = torch.tensor([1e25, 1.3, 1e25, 0.7, 0.4], dtype=torch.float64).reshape(1, 1, 1, 5)
    x, B, C = (source.normal(1, 1, 1, 5, size) for size in (3, 2, 2))
    A, x = torch.tensor([decay], dtype=torch.float64), x / dt[..., None]
    y, _, tape = scan_forward(x, dt, A, B, C, None, None, keep=True)
    dy = source.normal(*y.shape)
    got = scan_backward(tape, dy, None)

    leaves = [each.clone().requires_grad_() for each in (x, B, C, dt, A)]
    flat = [each.movedim(2, 3).flatten(1, 2) for each in leaves[:4]]
    zeros = torch.zeros(1, 1, 3, 2, dtype=torch.float64)
    plain, _ = scan_sequential(flat[0] * flat[3][..., None], flat[3] * leaves[4], flat[1], flat[2], zeros)
    wanted = torch.autograd.grad((plain * dy.movedim(2, 3).flatten(1, 2)).sum(), leaves)

    for one, other in zip(got[:5], wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=0.0)


def test_a_step_of_nothing_has_no_gradient_of_its_own_and_all_gradients_keep_their_dtype():
    dt, one = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2), torch.ones(1, 1, 1, 2, 1)
    _, state, tape = scan_forward(
        one, dt, torch.tensor([-1.0]), one, one, torch.zeros(1), torch.zeros(1, 1, 1, 1), keep=True
    )

    got = scan_backward(tape, one * torch.tensor([1.0, 0.0])[:, None], torch.zeros_like(state))

    assert got.dt.flatten().tolist() == [0.0, 0.0]
    assert {each.dtype for each in got} == {torch.float32}


def test_sizes_that_do_not_fit_are_refused_by_name(block):
    state = State(*block.initial_state(1))
    message = "fused_mixer: axis 'batch' is 1 in state.conv (1, 2, 12) but 2 in u (2, 5, 4)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        fused_mixer(torch.zeros(2, 5, 4), state, block._weights(None), block._options(), block._composed)


def test_a_plain_call_runs_in_the_fast_form(block):
    assert reason(block, torch.zeros(2, 5, 4), block.initial_state(2)) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda u, state: (u, state, torch.ones(2, 5, dtype=torch.bool)), "there are pads"),
        (lambda u, state: (u.double(), state), "dtypes or devices differ"),
        (lambda u, state: (u[:, :0], state), "there is nothing to run"),
        (lambda u, state: (u[:1], state), "sizes do not fit, which the composed form says in words"),
    ],
    ids=["pads", "dtypes", "no time", "another batch"],
)
def test_a_call_that_it_does_not_cover_says_why(change: Callable, expected: str, block):
    assert reason(block, *change(torch.zeros(2, 5, 4), block.initial_state(2))) == expected


def test_autocast_and_a_replaced_or_watched_projection_say_why(block):
    call = torch.zeros(2, 5, 4), block.initial_state(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert reason(block, *call) == "autocast is on"
    handle = block.out_proj.register_forward_hook(lambda *_: None)
    assert reason(block, *call) == "a projection is no plain nn.Linear"
    handle.remove()
    block.in_proj = nn.Sequential(block.in_proj)
    assert reason(block, *call) == "a projection is no plain nn.Linear"
    assert block(*call)[0].shape == (2, 5, 4)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"device": "cuda"}, "the device is cuda, not cpu"),
        ({"dtype": torch.bfloat16}, "the dtype is torch.bfloat16, neither float32 nor float64"),
        ({"is_autocast": True}, "autocast is on"),
        ({}, None),
    ],
)
def test_what_can_be_said_before_a_call(kind, expected):
    assert why_never_fused(**{"device": "cpu", "dtype": torch.float32, "is_autocast": False} | kind) == expected


def test_under_torch_func_the_composed_form_runs(block):
    u, state = torch.randn(3, 5, 4), block.initial_state(1)
    one = torch.func.vmap(lambda each: block(each[None], state)[0][0])

    assert torch.allclose(one(u), block(u, block.initial_state(3))[0], atol=1e-6)


def test_a_block_asks_and_obeys(block, monkeypatch: pytest.MonkeyPatch):
    u, state = torch.randn(2, 5, 4), block.initial_state(2)
    fast, _ = block(u, state)
    monkeypatch.setattr(room, "why_composed", lambda *_: "asked for")
    slow, _ = block(u, state)

    assert "_Mixer" in type(fast.grad_fn).__name__
    assert "_Mixer" not in type(slow.grad_fn).__name__


def test_a_step_asks_and_obeys_and_both_forms_of_it_are_the_same(block, monkeypatch: pytest.MonkeyPatch):
    ran, form = [], room._fast_step
    monkeypatch.setattr(room, "_fast_step", lambda *of: ran.append("fast") or form(*of))
    u, state = torch.randn(3, 1, 4), block(torch.randn(3, 5, 4), block.initial_state(3))[1]
    fast = block.step(u, state)
    assert ran == ["fast"]
    monkeypatch.setattr(room, "why_composed_step", lambda *_: "asked for")
    slow = block.step(u, state)

    assert ran == ["fast"]
    for one, other in zip((fast[0], *fast[1]), (slow[0], *slow[1]), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", ["conv_weight", "conv_bias", "A_log", "dt_bias", "D", "norm_weight"])
def test_a_step_with_a_parameter_of_another_size_takes_the_form_that_checks_it(block, name):
    setattr(block, name, nn.Parameter(torch.ones(1, *getattr(block, name).shape[1:])))

    why = why_composed_step(torch.zeros(1, 1, 4), block.initial_state(1), (*block._sizes(1), *block._own_sizes), block)

    assert why == "sizes do not fit, which the composed form says in words"


@pytest.mark.parametrize("dt_range", [(0.0, math.inf), (1.0, math.inf), (0.0, 0.01)])
def test_a_step_keeps_its_dt_within_the_limits(dt_range, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    block = Mamba2Block(replace(CONFIG, dt_range=dt_range))
    u, state = torch.randn(3, 1, 4), BlockState(torch.randn(3, 2, 12), torch.randn(3, 4, 2, 2))
    y, after = block.step(u, state)
    monkeypatch.setattr(room, "why_composed_step", lambda *_: "asked for")
    expected, expected_after = block.step(u, state)

    assert torch.allclose(y, expected, atol=1e-6)
    assert torch.allclose(after.ssm, expected_after.ssm, atol=1e-6)


def test_nothing_is_kept_where_no_gradient_is_wanted(block, monkeypatch: pytest.MonkeyPatch):
    kept, run = [], mixer._run

    def watched(*of: object, keep: bool) -> tuple:
        ran = run(*of, keep=keep)
        kept.append(len(ran[2]))
        return ran

    monkeypatch.setattr(mixer, "_run", watched)
    call = torch.randn(2, 5, 4), block.initial_state(2)
    block(*call)
    with torch.no_grad():
        y, after = block(*call)
    block.requires_grad_(False)(*call)

    assert kept == [1, 0, 0]
    assert (y.grad_fn, after.ssm.grad_fn) == (None, None)


@pytest.mark.parametrize("norm", ["after gate", "before gate", "none"])
def test_a_gate_without_a_tape_gives_the_same_and_writes_over_what_it_was_given(norm):
    source = Source(3)
    y, z = source.normal(2, 1, 4, 5, 3), source.normal(2, 5, 12)
    options = {"n_groups": 2, "norm": norm, "eps": 1e-5}
    expected, tape = gate_forward(y, z.clone(), **options, keep=True)

    found, nothing = gate_forward(y, z, **options, keep=False)

    assert (tape is None, nothing) == (False, None)
    assert torch.equal(found, expected)
    assert torch.equal(z, F.silu(tape.z) if norm == "before gate" else expected)


def test_a_scan_without_a_tape_gives_the_same():
    source = Source(4)
    of = [source.normal(1, 2, 4, 5, 3), source.normal(1, 2, 4, 5).abs(), -torch.ones(4, dtype=torch.float64)]
    of += [source.normal(1, 2, 2, 5, 3), source.normal(1, 2, 2, 5, 3), torch.ones(4, dtype=torch.float64), None]
    y, state, tape = scan_forward(*of, keep=True)

    found, after, nothing = scan_forward(*of, keep=False)

    assert (tape is None, nothing) == (False, None)
    assert torch.equal(found, y)
    assert torch.equal(after, state)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
def test_a_forward_that_ran_before_has_no_pages_mapped_anew():
    program = """
import resource, torch
from mamba2.config import ModelConfig
from mamba2.model.block import Mamba2Block

torch.set_num_threads(1)
block, u = Mamba2Block(ModelConfig()), torch.zeros(32, 60, 256)
faults = []
with torch.no_grad():
    for _ in range(4):
        block(u, block.initial_state(32))
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[-2])
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    # The pages of one tile are ten thousand.
    assert int(answer.stdout) < 1000
