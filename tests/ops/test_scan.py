"""The recurrence on numbers done by hand."""

import math
import re
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mamba2.errors import ConfigError, ShapeError
from mamba2.ops import scan as scan_module
from mamba2.ops.scan import _carry_at_once, prepare_scan_input, scan_chunked, scan_sequential, scan_step

HALF = math.log(0.5)
SCANS = pytest.mark.parametrize(
    "scan", [scan_sequential, partial(scan_chunked, chunk=2)], ids=["sequential", "chunked"]
)


def along_time(*values: float) -> torch.Tensor:
    """One sequence, one head, one channel or state."""
    return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1)


def prepared(*, dt: float, dt_bias: float = 0.0, A_log: float = 0.0, dt_range=(0.0, math.inf)) -> tuple[float, float]:
    """x and log decay of an x of 3."""
    ones = along_time(1.0)
    out = prepare_scan_input(
        3 * ones,
        torch.full((1, 1, 1), dt, dtype=torch.float64),
        torch.tensor([A_log], dtype=torch.float64),
        ones,
        ones,
        torch.tensor([dt_bias], dtype=torch.float64),
        dt_range=dt_range,
    )
    return out.x.item(), out.log_decay.item()


def test_the_time_step_is_the_softplus_of_input_and_bias():
    assert prepared(dt=1.0, dt_bias=math.log(math.e - 1) - 1.0, A_log=math.log(2.0)) == pytest.approx((3.0, -2.0))


def test_the_time_step_is_limited_from_above():
    assert prepared(dt=5.0, dt_range=(0.0, 0.5)) == pytest.approx((1.5, -0.5))


def test_the_time_step_is_limited_from_below():
    assert prepared(dt=-20.0, dt_range=(2.0, 4.0)) == pytest.approx((6.0, -2.0))


def test_a_pad_is_a_time_step_of_zero():
    one, zero, mask = torch.ones(1, 2, 1, 1), torch.zeros(1), torch.tensor([[True, False]])

    out = prepare_scan_input(one, one[..., 0], zero, one, one, zero, mask, dt_range=(0.5, 0.5))

    assert (out.x.flatten().tolist(), out.log_decay.flatten().tolist()) == ([0.5, 0.0], [-0.5, 0.0])


def test_B_and_C_are_prepared_by_widening_alone():
    x = torch.ones(1, 1, 1, 1, dtype=torch.bfloat16)

    out = prepare_scan_input(x, x[..., 0], x[0, 0, 0], 2 * x, 3 * x, x[0, 0, 0], dt_range=(0.0, 1.0))

    assert [(each.dtype, each.item()) for each in out] == [
        (torch.float32, 1.0),
        (torch.float32, pytest.approx(-math.e, rel=1e-6)),
        (torch.float32, 2.0),
        (torch.float32, 3.0),
    ]


def test_one_step_decays_the_state_and_adds_the_input():
    y, state = scan_step(
        along_time(3.0),
        torch.full((1, 1, 1), HALF, dtype=torch.float64),
        torch.tensor([[[[2.0, 4.0]]]], dtype=torch.float64),
        torch.tensor([[[[1.0, 10.0]]]], dtype=torch.float64),
        torch.tensor([[[[10.0, 20.0]]]], dtype=torch.float64),
    )

    assert (state.flatten().tolist(), y.item()) == (pytest.approx([11.0, 22.0]), pytest.approx(231.0))


@SCANS
def test_steps_follow_one_another(scan):
    y, state = scan(
        along_time(1.0, 2.0, 4.0),
        torch.full((1, 3, 1), HALF, dtype=torch.float64),
        along_time(1.0, 1.0, 1.0),
        along_time(1.0, 2.0, 4.0),
        along_time(8.0),
    )

    assert (y.flatten().tolist(), state.item()) == (pytest.approx([5.0, 9.0, 25.0]), pytest.approx(6.25))


@SCANS
def test_neighbouring_heads_share_a_group(scan):
    ones = torch.ones(1, 1, 4, 1)
    groups = torch.tensor([1.0, 10.0]).reshape(1, 1, 2, 1)

    y, state = scan(ones, -ones[..., 0], groups, groups + 1, torch.zeros(1, 4, 1, 1))

    assert (state.flatten().tolist(), y.flatten().tolist()) == ([1.0, 1.0, 10.0, 10.0], [2.0, 2.0, 110.0, 110.0])


@SCANS
def test_the_state_is_unchanged_by_zero_time_steps(scan):
    none, state = torch.ones(1, 0, 1, 1), torch.tensor([[[[7.0]]]])

    y, after = scan(none, none[..., 0], none, none, state)

    assert (y.tolist(), after.item()) == ([[]], 7.0)


@SCANS
def test_a_decay_too_strong_for_float32_forgets_everything(scan):
    ones = torch.ones(1, 3, 1, 1)

    y, state = scan(ones, torch.full((1, 3, 1), -1e30), ones, ones, torch.full((1, 1, 1, 1), 5.0))

    assert (y.flatten().tolist(), state.item()) == ([1.0, 1.0, 1.0], 1.0)


@SCANS
def test_a_decay_that_forgets_everything_leaves_those_after_it_as_they_are(scan):
    ones = torch.ones(1, 4, 1, 1)

    y, _ = scan(ones, torch.tensor([[[-1e30], [HALF], [-1e30], [HALF]]]), ones, ones, torch.zeros(1, 1, 1, 1))

    assert y.flatten().tolist() == pytest.approx([1.0, 1.5, 1.0, 1.5])


@SCANS
def test_a_narrower_state_goes_on_in_the_dtype_of_the_inputs(scan):
    ones = along_time(1.0, 1.0, 1.0)

    y, state = scan(ones, torch.full((1, 3, 1), math.log(0.3), dtype=torch.float64), ones, ones, torch.ones(1, 1, 1, 1))

    assert state.dtype == torch.float64
    assert y.flatten().tolist() == pytest.approx([1.3, 1.39, 1.417], rel=1e-12)


def test_decays_of_a_long_chunk_are_summed_in_float64():
    decay = torch.tensor([-2.0, -0.3]).repeat(300)[None, :, None]
    ones, state = torch.ones(1, 600, 1, 1), torch.zeros(1, 1, 1, 1)

    y, _ = scan_chunked(ones, decay, ones, ones, state, chunk=600)
    expected, _ = scan_sequential(*(each.double() for each in (ones, decay, ones, ones, state)))

    assert y.flatten().tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-6)  # in float32: 3e-5


@SCANS
def test_autocast_does_not_narrow_the_recurrence(scan):
    torch.manual_seed(0)
    x, B, state = torch.randn(2, 5, 4, 3), torch.randn(2, 5, 1, 8), torch.randn(2, 4, 3, 8)
    expected = scan(x, -x[..., 0].abs(), B, B, state)
    with torch.autocast("cpu", torch.bfloat16):
        got = scan(x, -x[..., 0].abs(), B, B, state)

    for each, wanted in zip(got, expected, strict=True):
        assert each.dtype == torch.float32
        assert torch.equal(each, wanted)


@pytest.mark.parametrize(("time", "blocks"), [(0, 1), (1, 2), (4, 3), (5, 4)])
def test_a_compiled_graph_has_at_most_one_empty_chunk_and_part_of_one(time, blocks, monkeypatch):
    seen = []
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(
        scan_module, "_carry_at_once", lambda *each: seen.append(each[1].shape[1]) or _carry_at_once(*each)
    )
    ones = torch.ones(1, time, 1, 1)
    scan_chunked(ones, -ones[..., 0], ones, ones, torch.zeros(1, 1, 1, 1), chunk=2)

    assert seen == [blocks]


@pytest.mark.parametrize("is_compiling", [False, True])
def test_the_chunks_are_cut_on_the_device_of_the_input(is_compiling, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: is_compiling)
    with FakeTensorMode():
        x, B, state = (torch.zeros(shape, device="meta") for shape in ((2, 5, 4, 3), (2, 5, 1, 8), (2, 4, 3, 8)))
        y, after = scan_chunked(x, x[..., 0], B, B, state, chunk=2)

    assert [(each.device.type, each.shape) for each in (y, after)] == [("meta", x.shape), ("meta", state.shape)]


def test_under_autocast_the_chunks_stay_in_float32():
    ones = torch.ones(1, 300, 1, 1)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = scan_chunked(ones, 0 * ones[..., 0], ones, ones, torch.zeros(1, 1, 1, 1), chunk=300)

    assert y[0, -1].item() == 300.0  # bfloat16 counts to 256


@SCANS
@pytest.mark.parametrize("groups", [3, 0])
def test_heads_that_the_groups_do_not_divide_are_refused(scan, groups):
    x, B = torch.zeros(1, 2, 4, 1), torch.zeros(1, 2, groups, 1)

    with pytest.raises(
        ConfigError, match=f"^scan: heads must be a multiple of groups; x has 4 heads, B has {groups} groups.$"
    ):
        scan(x, x[..., 0], B, B, torch.zeros(1, 4, 1, 1))


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_of_nothing_is_refused(chunk):
    x = along_time(1.0)

    with pytest.raises(ConfigError, match=f"^scan_chunked: chunk must be at least 1; got {chunk}.$"):
        scan_chunked(x, x[..., 0], x, x, x, chunk=chunk)


@pytest.mark.parametrize(
    ("scan", "time", "message"),
    [
        (scan_step, 1, "scan_step: axis 'state' is 8 in C (2, 1, 1, 8) but 16 in B (2, 1, 1, 16)."),
        (scan_sequential, 5, "scan_sequential: axis 'state' is 8 in C (2, 5, 1, 8) but 16 in B (2, 5, 1, 16)."),
        (
            partial(scan_chunked, chunk=4),
            5,
            "scan_chunked: axis 'state' is 8 in C (2, 5, 1, 8) but 16 in B (2, 5, 1, 16).",
        ),
    ],
    ids=["step", "sequential", "chunked"],
)
def test_another_number_of_states_is_refused_by_name(scan, time, message):
    x, B, C = torch.zeros(2, time, 4, 3), torch.zeros(2, time, 1, 16), torch.zeros(2, time, 1, 8)

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        scan(x, x[..., 0], B, C, torch.zeros(2, 4, 3, 16))


def test_two_time_steps_at_once_are_refused_by_name():
    x = torch.zeros(1, 2, 1, 1)

    with pytest.raises(
        ShapeError, match=re.escape("scan_step: axis '1' is 2 in x (1, 2, 1, 1) but must be 1 (fixed).")
    ):
        scan_step(x, x[..., 0], x, x, torch.zeros(1, 1, 1, 1))


def test_another_number_of_heads_is_refused_by_name():
    x, one = torch.zeros(2, 5, 4, 3), torch.zeros(2, 5, 1, 8)
    message = "prepare_scan_input: axis 'head' is 3 in dt_bias (3,) but 4 in x (2, 5, 4, 3)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        prepare_scan_input(x, x[..., 0], torch.zeros(4), one, one, torch.zeros(3), dt_range=(0.0, 1.0))
