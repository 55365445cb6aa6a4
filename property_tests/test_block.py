"""A block with any options is one function: over a sequence, in parts, step by step, and in a textbook."""

import torch
from hypothesis import given
from torch import Tensor

from mamba2.model.block import BlockState, Mamba2Block
from mamba2.verify.checks import TOLERANCES, require_close
from mamba2.verify.strategies import Source, block_cases, seeds

cases = block_cases(Mamba2Block)


def in_steps(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
    outputs = [u[:, :0]]
    for t in range(u.shape[1]):
        y, state = block.step(u[:, t : t + 1], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def textbook(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
    """Section 7 of arXiv 2405.21060, a time step and a head at a time."""
    config, own = block.config, dict(block.named_parameters())
    d_inner, N = config.d_inner, config.d_state
    projected = u @ own["in_proj.weight"].T + own.get("in_proj.bias", 0.0)
    z, xBC, dt = projected[..., :d_inner], projected[..., d_inner : -config.n_heads], projected[..., -config.n_heads :]
    window = torch.cat((state.conv, xBC), dim=1)
    S, outputs = state.ssm.clone(), [u[:, :0]]
    for t in range(u.shape[1]):
        mixed = (window[:, t : t + config.d_conv] * own["conv_weight"].T).sum(1) + own.get("conv_bias", 0.0)
        mixed = mixed / (1 + torch.exp(-mixed))
        step = torch.log(1 + torch.exp(dt[:, t] + own["dt_bias"]))
        step = step.clip(min=config.dt_range[0]).clip(max=config.dt_range[1])
        heads = []
        for h in range(config.n_heads):
            group = h * config.n_groups // config.n_heads
            x = mixed[:, h * config.headdim : (h + 1) * config.headdim]
            B = mixed[:, d_inner + group * N :][:, :N]
            C = mixed[:, d_inner + (config.n_groups + group) * N :][:, :N]
            decay = torch.exp(step[:, h] * -torch.exp(own["A_log"][h]))
            S[:, h] = decay[:, None, None] * S[:, h] + step[:, h, None, None] * x[:, :, None] * B[:, None, :]
            skip = {
                "none": 0.0,
                "head": own["D"][h] if config.D == "head" else None,
                "channel": own["D"][h * config.headdim : (h + 1) * config.headdim] if config.D == "channel" else None,
            }[config.D]
            heads.append((S[:, h] * C[:, None, :]).sum(-1) + skip * x)
        y, opened = torch.cat(heads, dim=1), z[:, t] / (1 + torch.exp(-z[:, t]))
        if config.norm != "before gate":
            y = y * opened
        if config.norm != "none":
            width = d_inner // config.n_groups
            parts = [y[:, g * width : (g + 1) * width] for g in range(config.n_groups)]
            parts = [part / torch.sqrt((part**2).mean(1, keepdim=True) + config.norm_eps) for part in parts]
            y = torch.cat(parts, dim=1) * own["norm_weight"]
        if config.norm == "before gate":
            y = y * opened
        outputs.append((y @ own["out_proj.weight"].T + own.get("out_proj.bias", 0.0))[:, None])
    return torch.cat(outputs, dim=1), BlockState(window[:, u.shape[1] :], S)


def require_same(actual: tuple[Tensor, BlockState], expected: tuple[Tensor, BlockState]) -> None:
    (y, state), (y_expected, state_expected) = actual, expected
    require_close("y", y, y_expected)
    require_close("conv state", state.conv, state_expected.conv)
    require_close("ssm state", state.ssm, state_expected.ssm)


@given(cases)
def test_forward_is_the_textbook(case):
    block, u, state = case.block, case.u, case.state
    with torch.no_grad():
        require_same(block(u, state), textbook(block, u, state))


@given(cases)
def test_forward_is_a_prefill_of_any_length_and_then_steps(case):
    block, sizes, u, state = case.block, case.sizes, case.u, case.state
    whole = block(u, state)

    first, middle = block(u[:, : sizes.cut], state)
    second, last = in_steps(block, u[:, sizes.cut :], middle)

    require_same((torch.cat((first, second), dim=1), last), whole)


@given(cases)
def test_stopping_anywhere_and_going_on_changes_nothing(case):
    block, sizes, u, state = case.block, case.sizes, case.u, case.state
    whole = block(u, state)

    first, middle = block(u[:, : sizes.cut], state)
    second, last = block(u[:, sizes.cut :], middle)

    require_same((torch.cat((first, second), dim=1), last), whole)


@given(cases)
def test_forward_and_steps_have_the_same_gradients(case):
    block, u, state = case.block, case.u, case.state
    leaves = [each.requires_grad_() for each in (u, *state, *block.parameters())]

    def gradients(run: tuple[Tensor, BlockState]) -> tuple[Tensor, ...]:
        y, last = run
        total = y.sum() + last.conv.sum() + last.ssm.sum()
        return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)

    forward, steps = gradients(block(u, state)), gradients(in_steps(block, u, state))
    largest = torch.stack([each.abs().max() for each in steps if each.numel()]).max()

    for index, (actual, expected) in enumerate(zip(forward, steps, strict=True)):
        require_close(
            f"gradient {index}", actual, expected, scale=largest, tolerance=TOLERANCES[torch.float64].gradients
        )


@given(cases, seeds)
def test_the_past_does_not_see_the_future(case, seed):
    block, sizes, u, state = case.block, case.sizes, case.u, case.state
    u.requires_grad_()
    other = torch.cat((u[:, : sizes.cut], Source(seed).normal(*u[:, sizes.cut :].shape)), dim=1)
    past, past_of_other = (block(each, state)[0][:, : sizes.cut] for each in (u, other))

    require_close("y before the change", past_of_other, past)
    (gradient,) = torch.autograd.grad(past.sum(), u)
    assert (gradient[:, sizes.cut :] == 0).all()


@given(cases)
def test_a_sequence_does_not_see_the_others_of_its_batch(case):
    block, sizes, u, state = case.block, case.sizes, case.u, case.state
    u.requires_grad_()
    y, last = block(u, state)

    for row in range(sizes.batch):
        alone = slice(row, row + 1)
        require_same(
            block(u[alone], BlockState(state.conv[alone], state.ssm[alone])),
            (y[alone], BlockState(last.conv[alone], last.ssm[alone])),
        )
        (gradient,) = torch.autograd.grad(y[row].sum() + last.ssm[row].sum(), u, retain_graph=True)
        assert (gradient[torch.arange(sizes.batch) != row] == 0).all()


@given(cases)
def test_nothing_is_edited_in_place(case):
    block, u, state = case.block, case.u, case.state
    before = [each.clone() for each in (u, *state, *block.parameters())]

    with torch.no_grad():
        block(u, state)
        in_steps(block, u, state)

    assert all(torch.equal(now, then) for now, then in zip((u, *state, *block.parameters()), before, strict=True))


@given(cases)
def test_in_float32_forward_and_steps_differ_by_rounding_only(case):
    block, u = case.block.float(), case.u.float()
    state = BlockState(*(each.float() for each in case.state))
    with torch.no_grad():
        require_same(in_steps(block, u, state), block(u, state))
