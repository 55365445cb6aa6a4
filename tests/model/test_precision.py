"""In half precision the state and the decays stay in float32, and the error is that of half precision itself."""

import math

import pytest
import torch
from torch import Tensor

from mamba2.config import ModelConfig
from mamba2.model.backbone import Backbone
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.ops.norm import rms_norm
from mamba2.ops.scan import scan_chunked, scan_sequential

HALVES = [torch.bfloat16, torch.float16]
CONFIG = ModelConfig(d_model=32, headdim=8, n_groups=2, d_state=8, chunk=16)


def run(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
    return block(u, state)


def in_steps(block: Mamba2Block, u: Tensor, state: BlockState) -> tuple[Tensor, BlockState]:
    outputs = []
    for t in range(u.shape[1]):
        y, state = block.step(u[:, t : t + 1], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


@pytest.fixture
def block() -> Mamba2Block:
    torch.manual_seed(0)
    return Mamba2Block(CONFIG)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("path", [run, in_steps])
def test_under_autocast_the_state_stays_float32(path, half: torch.dtype, block: Mamba2Block) -> None:
    with torch.autocast("cpu", dtype=half):
        y, state = path(block, torch.randn(2, 20, 32), block.initial_state(2))

    assert (y.dtype, state.ssm.dtype) == (half, torch.float32)
    assert y.isfinite().all()


@pytest.mark.parametrize("half", HALVES)
def test_in_half_precision_both_paths_keep_a_float32_state_and_the_input_dtype(
    half: torch.dtype, block: Mamba2Block
) -> None:
    block = block.to(half)
    u = torch.randn(2, 20, 32).to(half)
    dtypes = [(y.dtype, state.ssm.dtype) for y, state in (f(block, u, block.initial_state(2)) for f in (run, in_steps))]

    assert dtypes == [(half, torch.float32)] * 2


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("autocast", [False, True], ids=["half weights", "autocast"])
def test_no_path_is_less_exact_than_twice_the_textbook_in_the_same_dtype(
    autocast: bool, half: torch.dtype, block: Mamba2Block
) -> None:
    """The ratio rule: errors against float64, of the paths and of a step loop whose state is in half precision."""
    u = torch.randn(2, 64, 32)
    exact, _ = block.double()(u.double(), block.initial_state(2))
    weights = torch.float32 if autocast else half
    block, u = block.to(weights), u.to(weights)
    zero = block.initial_state(2)

    def textbook() -> Tensor:
        state, outputs = zero, []
        for t in range(u.shape[1]):
            y, state = block.step(u[:, t : t + 1], state)
            state = BlockState(state.conv, state.ssm.to(half).float())
            outputs.append(y)
        return torch.cat(outputs, dim=1)

    def error(y: Tensor) -> float:
        return ((y.double() - exact).abs().max() / exact.abs().max()).item()

    with torch.autocast("cpu", dtype=half, enabled=autocast):
        allowed = 2 * error(textbook()) + torch.finfo(half).eps
        errors = [error(path(block, u, zero)[0]) for path in (run, in_steps)]

    assert max(errors) <= allowed


@pytest.mark.parametrize("half", HALVES)
def test_training_under_autocast_has_finite_gradients_close_to_those_of_float32(
    half: torch.dtype, block: Mamba2Block
) -> None:
    u = torch.randn(2, 20, 32)

    def gradients() -> dict[str, Tensor]:
        block.zero_grad()
        block(u, block.initial_state(2))[0].float().square().mean().backward()
        return {name: each.grad.clone() for name, each in block.named_parameters()}

    exact = gradients()
    with torch.autocast("cpu", dtype=half):
        rounded = gradients()

    for name, expected in exact.items():
        error = (rounded[name] - expected).abs().max() / expected.abs().max()
        assert error < (2e-2 if half is torch.float16 else 1e-1), name


def test_the_residual_stream_of_a_half_precision_stack_is_float32() -> None:
    """In bfloat16 the sum 256 + 0.5 would be 256: what a block adds to a large stream must not be lost."""
    torch.manual_seed(0)
    backbone = Backbone(ModelConfig(d_model=8, layers=2, headdim=4, d_state=3))
    with torch.no_grad():
        for block in backbone.blocks:
            block.out_proj.weight.zero_()
            block.out_proj.bias = torch.nn.Parameter(torch.full((8,), 0.5))
    seen = []
    backbone.blocks[1].register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    backbone = backbone.to(torch.bfloat16)
    x = torch.full((1, 1, 8), 256.0, dtype=torch.bfloat16)
    x[..., 0] = 1.0
    backbone(x, backbone.initial_state(1))
    stream = x.float() + 0.5

    assert seen[0].dtype == torch.bfloat16
    assert seen[0].tolist() == rms_norm(stream, torch.ones(8), eps=1e-5).bfloat16().tolist()


def test_one_large_step_among_small_ones_costs_float32_no_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    x, B, C = (torch.randn(1, 64, 1, 4, generator=generator) for _ in range(3))
    dt = torch.full((1, 64, 1), 1e-2)
    dt[:, 20] = 1e4
    arguments = (x * 1e-2, -dt, B, C, torch.zeros(1, 1, 4, 4))
    y, _ = scan_chunked(*arguments, chunk=64)
    exact, _ = scan_sequential(*(each.double() for each in arguments))

    assert ((y - exact).abs().max() / exact.abs().max()).item() < 1e-6
    assert math.isfinite(y.sum().item())
