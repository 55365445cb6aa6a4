"""The fast form of a block is the composed form: values, states and every gradient, with all options and any tiles."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mamba2.config import ModelConfig
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.ops.conv import causal_conv1d
from mamba2.ops.fused.mixer import fused_mixer
from mamba2.ops.fused.plan import Plan
from mamba2.ops.fused.tile import State
from mamba2.ops.norm import rms_norm
from mamba2.ops.scan import scan_chunked
from mamba2.verify.checks import TOLERANCES, require_close
from mamba2.verify.strategies import BlockCase, Source, block_cases, randomised, seeds

Run = Callable[[Mamba2Block, Tensor, BlockState], tuple[Tensor, BlockState]]


def as_layer(case: BlockCase, seed: int | None) -> BlockCase:
    """The case with the norm of a layer around its block, or without one."""
    norm = None if seed is None else nn.Parameter(Source(seed).uniform(0.5, 1.5, case.u.shape[2]))
    case.block.register_parameter("residual_norm", norm)
    return case


cases = st.builds(
    as_layer,
    block_cases(Mamba2Block, least_time=1).filter(lambda case: case.sizes.batch > 0),
    st.none() | seeds,
)
plans = st.builds(Plan, tile=st.integers(1, 40), chunk=st.integers(1, 18))
SETTINGS = st.sampled_from(["mild", "strong decay", "huge steps", "tiny steps", "no state", "huge input"])


def fused(plan: Plan | None = None) -> Run:
    def run(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
        own = block._weights(block.residual_norm), block._options(), block._composed
        y, after = fused_mixer(u, State(*state), *own, plan)
        return y, BlockState(*after)

    return run


def composed(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
    norm, scan = block.residual_norm, partial(scan_chunked, chunk=block.config.chunk)
    if norm is None:
        return block._run(u, state, causal_conv1d, scan)
    y, after = block._run(rms_norm(u, norm, eps=block.config.norm_eps), state, causal_conv1d, scan)
    return u + y, after


def with_setting(case: BlockCase, setting: str) -> BlockCase:
    """The case with a past, decays and steps of one kind."""
    with torch.no_grad():
        if setting == "strong decay":
            case.block.A_log.fill_(math.log(16.0))
            case.block.dt_bias.fill_(math.log(math.e - 1))
        elif setting == "huge steps":
            case.block.A_log.fill_(math.log(1e3))
            case.block.dt_bias[0] = 1e6
        elif setting == "tiny steps":
            case.block.dt_bias.fill_(-200.0)
    if setting == "no state":
        return replace(case, state=BlockState(*(torch.zeros_like(each) for each in case.state)))
    return replace(case, u=1e4 * case.u) if setting == "huge input" else case


def leaves_of(case: BlockCase) -> list[Tensor]:
    return [each.requires_grad_() for each in (case.u, *case.state, *case.block.parameters())]


def outputs(run: Run, case: BlockCase) -> list[Tensor]:
    y, last = run(case.block, case.u, case.state)
    return [y, *last]


def weighted(results: list[Tensor], use: tuple[bool, ...]) -> Tensor:
    source = Source(0)
    weights = [source.uniform(0.5, 1.5, *each.shape).to(each.dtype) for each in results]
    return sum((each * weight).sum() for each, weight, is_used in zip(results, weights, use, strict=True) if is_used)


def gradients(results: list[Tensor], leaves: list[Tensor], use: tuple[bool, ...]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(weighted(results, use), leaves, allow_unused=True, materialize_grads=True)


def require_same(actual: list[Tensor], expected: list[Tensor], of: str, largest: Tensor | None = None) -> None:
    """Judged by the dtype of `actual`; the scale of gradients is the largest of all."""
    table = TOLERANCES[actual[0].dtype]
    for index, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        tolerance = table.outputs if largest is None else table.gradients
        require_close(f"{of} {index}", got.to(wanted.dtype), wanted, scale=largest, tolerance=tolerance)


def largest_of(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([each.abs().max() for each in tensors if each.numel()]).max()


uses = st.sampled_from([(True, True, True), (True, False, False), (False, True, False), (False, False, True)])


@given(cases, plans, SETTINGS, uses)
def test_in_float64_outputs_states_and_all_gradients_are_those_of_the_composed_form(case, plan, setting, use):
    case = with_setting(case, setting)
    leaves = leaves_of(case)
    actual, expected = outputs(fused(plan), case), outputs(composed, case)
    require_same(actual, expected, "output")

    wanted = gradients(expected, leaves, use)
    require_same(gradients(actual, leaves, use), wanted, "gradient", largest_of(wanted))


@given(cases, plans, st.sampled_from(["mild", "strong decay", "no state"]))
def test_in_float32_values_and_gradients_are_those_of_float64_but_for_rounding(case, plan, setting):
    case, everything = with_setting(case, setting), (True, True, True)
    # the numbers have to be the same ones, so those of float32 are what float64 starts from
    case.block.float().double()
    case = replace(case, u=case.u.float().double(), state=BlockState(*(each.float().double() for each in case.state)))
    leaves = leaves_of(case)
    exact = outputs(composed, case)
    wanted = gradients(exact, leaves, everything)

    single = replace(
        case,
        block=case.block.float(),
        u=case.u.detach().float(),
        state=BlockState(*(each.detach().float() for each in case.state)),
    )
    leaves = leaves_of(single)
    actual = outputs(fused(plan), single)

    require_same(actual, exact, "output")
    require_same(gradients(actual, leaves, everything), wanted, "gradient", largest_of(wanted))


@given(cases, plans, plans)
def test_without_grad_mode_any_tiles_give_what_is_given_with_it(case, plan, other):
    leaves_of(case)
    with_grad = outputs(fused(plan), case)
    with torch.no_grad():
        without = outputs(fused(other), case)

    assert not any(each.requires_grad for each in without)
    require_same(without, with_grad, "output")


@given(cases, plans)
def test_derivatives_that_can_be_differentiated_again_are_those_of_the_composed_form(case, plan):
    leaves, everything = leaves_of(case), (True, True, True)

    def derivatives(run: Run) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(
            weighted(outputs(run, case), everything),
            leaves,
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        total = sum(each.square().sum() for each in first)
        return *first, *torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)

    wanted = derivatives(composed)
    require_same(derivatives(fused(plan)), wanted, "derivative", largest_of(wanted))


def test_a_state_of_which_a_part_is_zero_is_no_state_of_zeros():
    case = case_of(11)
    case.state.ssm[:, 1:] = 0.0

    with torch.no_grad():
        require_same(outputs(fused(), case), outputs(composed, case), "output")


def test_a_state_that_is_the_same_everywhere_is_no_state_of_zeros():
    case = case_of(11)
    case = replace(case, state=BlockState(*(torch.ones_like(each) for each in case.state)))

    with torch.no_grad():
        require_same(outputs(fused(), case), outputs(composed, case), "output")


@pytest.mark.parametrize("use", [(True, False, False), (False, False, True)], ids=str)
def test_a_second_derivative_counts_once_what_one_input_owes_to_another(use):
    case = case_of(5)
    u = case.u.requires_grad_()

    def second(run: Run) -> Tensor:
        owing = replace(case, state=BlockState(*(each * u.mean() for each in case.state)))
        loss = weighted(outputs(run, owing), use)
        (first,) = torch.autograd.grad(loss, u, create_graph=True)
        return torch.autograd.grad(first.square().sum(), u)[0]

    require_close("second derivative", second(fused(Plan(tile=8, chunk=3))), second(composed))


@given(cases, plans)
def test_neither_direction_edits_what_it_is_given_and_backward_can_be_run_again(case, plan):
    leaves, everything = leaves_of(case), (True, True, True)
    before = [each.detach().clone() for each in leaves]
    results = outputs(fused(plan), case)
    kept = [each.detach().clone() for each in results]
    total = weighted(results, everything)
    first, again = (torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True) for _ in range(2))

    pairs = [*zip(leaves, before, strict=True), *zip(results, kept, strict=True), *zip(first, again, strict=True)]
    assert all(torch.equal(now, then) for now, then in pairs if now is not None)


@given(cases, seeds)
def test_inputs_and_gradients_of_other_layouts_in_memory_are_taken_as_they_are(case, seed):
    u, state = case.u, case.state
    order = BlockState(state.conv.mT.contiguous().mT, state.ssm.mT.contiguous().mT)
    other = replace(case, u=u.transpose(0, 1).contiguous().transpose(0, 1), state=order)
    weight = Source(seed).normal(*u.mT.shape).mT

    def run(each: BlockCase) -> list[Tensor]:
        leaves = leaves_of(each)
        results = outputs(fused(), each)
        return [
            *results,
            *torch.autograd.grad((results[0] * weight).sum(), leaves, allow_unused=True, materialize_grads=True),
        ]

    require_same(run(other), run(case), "result")


def case_of(time: int, **options: object) -> BlockCase:
    """Three sequences in two groups of two heads, going on from a state."""
    block = randomised(Mamba2Block(ModelConfig(d_model=8, headdim=4, n_groups=2, d_state=3, **options)), 1)
    source = Source(time)
    state = BlockState(*(source.normal(*each.shape) for each in block.initial_state(3)))
    return as_layer(BlockCase(block, None, source.normal(3, time, 8), state), None)


def require_same_with_gradients(
    plan: Plan | None, case: BlockCase, use: tuple[bool, ...] = (True, True, True), *, is_fresh: bool = False
) -> None:
    leaves = [each.requires_grad_() for each in (case.u, *case.block.parameters())] if is_fresh else leaves_of(case)
    actual, expected = outputs(fused(plan), case), outputs(composed, case)
    require_same(actual, expected, "output")
    wanted = gradients(expected, leaves, use)
    require_same(gradients(actual, leaves, use), wanted, "gradient", largest_of(wanted))


@pytest.mark.parametrize("time", [33, 100, 130])
def test_the_plan_that_is_chosen_gives_the_composed_form_too(time):
    require_same_with_gradients(None, case_of(time))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"D": "channel"},
        {"D": "none"},
        {"norm": "before gate"},
        {"norm": "none"},
        {"bias": True},
        {"conv_bias": False},
        {"d_conv": 1},
        {"dt_range": (0.5, 1.5)},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [None, 1], ids=["block", "layer"])
def test_each_option_alone_gives_the_composed_form(options, seed):
    require_same_with_gradients(Plan(tile=8, chunk=3), as_layer(case_of(11, **options), seed))


def test_steps_that_are_at_their_limits_have_the_gradients_of_the_composed_form():
    case = case_of(11)
    with torch.no_grad():
        case.block.in_proj.weight[-4:] = 0.0
    least, *_, most = F.softplus(case.block.dt_bias).sort().values.tolist()
    case.block.config = replace(case.block.config, dt_range=(least, most))

    require_same_with_gradients(Plan(tile=8, chunk=3), case)


@pytest.mark.parametrize("use", [(True, False, False), (False, True, False), (False, False, True)], ids=str)
@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("plan", [Plan(tile=8, chunk=3), Plan(tile=11, chunk=11)], ids=["many chunks", "one chunk"])
def test_each_result_alone_has_the_gradients_of_the_composed_form(plan, is_fresh, use):
    case = case_of(11)
    case = replace(case, state=case.block.initial_state(3)) if is_fresh else case

    require_same_with_gradients(plan, case, use, is_fresh=is_fresh)


@pytest.mark.parametrize("plan", [None, Plan(tile=1, chunk=1)], ids=["one tile", "a tile a step"])
@pytest.mark.parametrize("time", [1, 2, 3, 5])
def test_a_fresh_state_and_tiles_shorter_than_the_convolution_give_the_composed_form(time, plan):
    case = case_of(time)
    case = replace(case, state=case.block.initial_state(3))

    require_same_with_gradients(plan, case, is_fresh=True)
