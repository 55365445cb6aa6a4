"""A block's start, its sizes, and one block small enough to be done by hand."""

import math
import re

import pytest
import torch
import torch.nn.functional as F

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.verify.checks import require_close

SMALL = ModelConfig(d_model=4, d_state=2, headdim=2, d_conv=3)


def by_hand(**options) -> Mamba2Block:
    """One channel, one state, no past, dt of 1, a decay of a half, and weights large enough for silu to pass them."""
    config = ModelConfig(d_model=1, d_state=1, expand=1, headdim=1, d_conv=1, conv_bias=False, **options)
    block = Mamba2Block(config).double()
    with torch.no_grad():
        block.in_proj.weight.copy_(torch.tensor([[100.0], [100.0], [200.0], [300.0], [0.0]]))  # gate, x, B, C, dt
        block.conv_weight.fill_(1.0)
        block.A_log.fill_(math.log(math.log(2.0)))
        block.dt_bias.fill_(math.log(math.e - 1))
        block.out_proj.weight.fill_(1e-8)
        if block.D is not None:
            block.D.fill_(3.0)
    return block


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # S = 100·200, then half of it and as much again; y = 300·S + 3·100, opened by 100
        ({"norm": "none", "D": "head"}, [6.0003, 9.0003]),
        ({"norm": "none", "D": "channel"}, [6.0003, 9.0003]),
        ({"norm": "none", "D": "none"}, [6.0, 9.0]),
        ({"norm": "none", "D": "none", "dt_range": (2.0, 3.0)}, [12.0, 15.0]),
        ({"norm": "after gate"}, [1e-8, 1e-8]),
        ({"norm": "before gate"}, [1e-6, 1e-6]),
    ],
)
def test_two_time_steps_by_hand(options, expected):
    block = by_hand(**options)

    y, _ = block(torch.ones(1, 2, 1, dtype=torch.float64), block.initial_state(1))

    assert y.flatten().tolist() == pytest.approx(expected)


def test_the_state_after_two_time_steps_by_hand():
    block = by_hand()

    _, state = block(torch.ones(1, 2, 1, dtype=torch.float64), block.initial_state(1))

    assert (state.ssm.item(), state.conv.tolist()) == (pytest.approx(30000.0), [[]])


def test_the_conv_state_holds_the_last_inputs_of_the_convolution():
    block = Mamba2Block(SMALL)
    u = torch.randn(1, 5, 4)

    _, state = block(u, block.initial_state(1))

    assert torch.equal(state.conv, block.in_proj(u)[:, -2:, SMALL.d_inner : -SMALL.n_heads])


def test_the_initial_state_is_zero():
    state = Mamba2Block(SMALL).initial_state(2)

    assert [(tuple(each.shape), each.abs().sum().item()) for each in state] == [((2, 2, 12), 0.0), ((2, 4, 2, 2), 0.0)]


def test_the_initial_state_is_beside_the_parameters_and_in_their_dtype():
    assert [each.dtype for each in Mamba2Block(SMALL).double().initial_state(2)] == [torch.float64, torch.float64]
    assert [each.dtype for each in Mamba2Block(SMALL).half().initial_state(2)] == [torch.float16, torch.float32]
    assert [each.device.type for each in Mamba2Block(SMALL).to("meta").initial_state(2)] == ["meta", "meta"]


def test_a_bfloat16_block_keeps_a_float32_state():
    block = Mamba2Block(SMALL).bfloat16()

    y, state = block(torch.ones(1, 3, 4, dtype=torch.bfloat16), block.initial_state(1))

    assert (y.dtype, state.conv.dtype, state.ssm.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)


def test_a_block_alone_starts_within_its_ranges():
    config = ModelConfig(d_model=1024, headdim=1, dt_init=(0.02, 0.05), A_init=(2.0, 3.0))
    block = Mamba2Block(config)

    dt, A = F.softplus(block.dt_bias.double()), block.A_log.double().exp()

    assert 0.02 - 1e-6 <= dt.min() < 0.021 < 0.049 < dt.max() <= 0.05 + 1e-6
    assert 2.0 - 1e-5 <= A.min() < 2.01 < 2.99 < A.max() <= 3.0 + 1e-5


def test_the_convolution_starts_within_one_over_the_root_of_its_width():
    block = Mamba2Block(ModelConfig(d_model=1024, d_conv=4))

    for weights in (block.conv_weight, block.conv_bias):
        assert -0.5 <= weights.min() < -0.49 < 0.49 < weights.max() <= 0.5


def test_the_time_step_starts_log_uniform():
    config = ModelConfig(d_model=4096, headdim=1, dt_init=(1e-3, 1e-1))

    dt = F.softplus(Mamba2Block(config).dt_bias)

    assert dt.median().item() == pytest.approx(1e-2, rel=0.1)


def test_the_skip_and_the_norm_start_at_one():
    block = Mamba2Block(SMALL)

    assert (block.D.unique().tolist(), block.norm_weight.unique().tolist()) == ([1.0], [1.0])


def test_the_reference_block_has_as_many_parameters_as_by_hand():
    in_proj, conv, heads, norm, out_proj = 256 * (512 + 544 + 8), 544 * 4 + 544, 3 * 8, 512, 512 * 256

    assert sum(each.numel() for each in Mamba2Block(ModelConfig()).parameters()) == (
        in_proj + conv + heads + norm + out_proj
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"bias": True}, {"in_proj.bias", "out_proj.bias", "conv_bias", "D", "norm_weight"}),
        ({"conv_bias": False}, {"D", "norm_weight"}),
        ({"D": "none", "norm": "none"}, {"conv_bias"}),
    ],
)
def test_what_is_switched_off_has_no_parameters(options, names):
    block = Mamba2Block(ModelConfig(d_model=4, headdim=2, **options))

    always = {"in_proj.weight", "conv_weight", "A_log", "dt_bias", "out_proj.weight"}
    assert {name for name, _ in block.named_parameters()} == always | names


@pytest.mark.parametrize(
    ("u", "state", "message"),
    [
        (
            torch.zeros(2, 5, 4),
            BlockState(torch.zeros(1, 2, 12), torch.zeros(1, 4, 2, 2)),
            "Mamba2Block.forward: axis 'batch' is 1 in state.conv (1, 2, 12) but 2 in u (2, 5, 4).",
        ),
        (
            torch.zeros(2, 5, 4),
            BlockState(torch.zeros(2, 2, 12), torch.zeros(1, 4, 2, 2)),
            "Mamba2Block.forward: axis 'batch' is 1 in state.ssm (1, 4, 2, 2) but 2 in u (2, 5, 4).",
        ),
        (
            torch.zeros(2, 5, 4),
            BlockState(torch.zeros(2, 3, 12), torch.zeros(2, 4, 2, 2)),
            "causal_conv1d: axis 'width-1' is 3 in past (2, 3, 12) but must be 2 (width-1, from weight).",
        ),
        (
            torch.zeros(2, 5, 4),
            BlockState(torch.zeros(2, 2, 12), torch.zeros(2, 4, 2, 3)),
            "scan_chunked: axis 'state' is 3 in state (2, 4, 2, 3) but 2 in B (2, 5, 1, 2).",
        ),
        (
            torch.zeros(2, 5, 3),
            BlockState(torch.zeros(2, 2, 12), torch.zeros(2, 4, 2, 2)),
            "Mamba2Block: axis 'd_model' is 3 in u (2, 5, 3) but 4 in the model.",
        ),
    ],
    ids=["batch of the state", "batch of its ssm part", "its width", "its states", "width of the input"],
)
def test_another_size_is_refused_by_name(u, state, message):
    with pytest.raises(ShapeError, match=f"^{re.escape(message)}(\n|$)"):
        Mamba2Block(SMALL)(u, state)


def test_a_step_of_two_bars_is_refused_by_name():
    block = Mamba2Block(SMALL)
    message = "Mamba2Block.step: axis '1' is 2 in u (1, 2, 4) but must be 1 (fixed)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}"):
        block.step(torch.zeros(1, 2, 4), block.initial_state(1))


@pytest.mark.parametrize("lay", [lambda each: each.mT.contiguous().mT, lambda each: each[:1].expand(2, -1, -1, -1)])
def test_a_step_goes_on_from_a_state_of_any_layout(lay):
    torch.manual_seed(0)
    block = Mamba2Block(ModelConfig(d_model=8, headdim=4, d_state=4))
    u, state = torch.randn(2, 1, 8), block.initial_state(2)
    ssm = lay(torch.randn_like(state.ssm))

    y, after = block.step(u, state._replace(ssm=ssm))
    expected, last = block.step(u, state._replace(ssm=ssm.contiguous()))

    assert torch.equal(y, expected)
    assert torch.equal(after.ssm, last.ssm)


def test_a_step_is_mapped_over_weights_as_a_sequence_is():
    torch.manual_seed(0)
    block = Mamba2Block(ModelConfig(d_model=8, headdim=4, d_state=4))
    u, state, biases = torch.randn(2, 1, 8), block.initial_state(2), torch.randn(3, *block.conv_bias.shape)

    def run(name):
        whole = Called(block, name)
        return torch.func.vmap(
            lambda bias: torch.func.functional_call(whole, {"block.conv_bias": bias}, (u, state))[0]
        )(biases)

    require_close("steps", run("step"), run("forward"))


class Called(torch.nn.Module):
    """A method of a block as a module of its own."""

    def __init__(self, block, name):
        super().__init__()
        self.block, self.name = block, name

    def forward(self, u, state):
        return getattr(self.block, self.name)(u, state)
