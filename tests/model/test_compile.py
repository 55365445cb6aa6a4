"""Compiled and exported, the model is the same function, and one graph serves every length."""

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from mamba2.config import ModelConfig
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.forecaster import Forecast, Forecaster
from mamba2.verify.checks import require_close

CONFIG = ModelConfig(d_model=8, headdim=4, n_groups=2, d_state=3, chunk=8, D="channel", bias=True, dt_range=(0.01, 1.0))
LENGTHS = (20, 2, 3, 7, 8, 9, 15, 16, 17, 40, 64, 65)


class Flat(nn.Module):
    """A block as a function of plain tensors, which is what an exported program takes."""

    def __init__(self, block: Mamba2Block, method: str) -> None:
        super().__init__()
        self.block, self.method = block, method

    def forward(self, u: Tensor, conv: Tensor, ssm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        run = self.block if self.method == "forward" else self.block.step
        y, state = run(u, BlockState(conv, ssm))
        return y, *state


@pytest.fixture
def block() -> Mamba2Block:
    torch.manual_seed(0)
    return Mamba2Block(CONFIG)


def inputs(block: Mamba2Block, batch: int, time: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch * 100 + time)
    shapes = ((batch, time, 8), *(each.shape for each in block.initial_state(batch)))
    u, conv, ssm = (torch.randn(shape, generator=generator) for shape in shapes)
    return u, conv, ssm


def require_same(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for name, actual, expected in zip(("y", "conv state", "ssm state"), got, wanted, strict=True):
        require_close(name, actual, expected)


def test_one_compiled_graph_runs_every_length(block: Mamba2Block) -> None:
    torch.compiler.reset()
    counters.clear()
    flat = Flat(block, "forward")
    compiled = torch.compile(flat, fullgraph=True, dynamic=True, backend="aot_eager")

    for time in LENGTHS:
        arguments = inputs(block, 3, time)
        results = compiled(*arguments)
        require_same(results, flat(*arguments))
        assert [each.untyped_storage().nbytes() for each in results] == [each.nbytes for each in results]
    assert counters["stats"]["unique_graphs"] == 1


def test_a_compiled_graph_has_the_same_gradients(block: Mamba2Block) -> None:
    torch.compiler.reset()
    flat = Flat(block, "forward")
    compiled = torch.compile(flat, fullgraph=True, dynamic=True, backend="aot_eager")

    def gradients(run: nn.Module) -> tuple[Tensor, ...]:
        arguments = [each.requires_grad_() for each in inputs(block, 2, 21)]
        return torch.autograd.grad(sum(each.sum() for each in run(*arguments)), [*arguments, *block.parameters()])

    for actual, expected in zip(gradients(compiled), gradients(flat), strict=True):
        require_close("gradient", actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("method", ["forward", "step"])
def test_an_exported_program_takes_any_batch_and_length(method: str, block: Mamba2Block) -> None:
    batch, time = torch.export.Dim("batch", max=64), torch.export.Dim("time", max=4096)
    flat = Flat(block, method)
    u = {0: batch, 1: time} if method == "forward" else {0: batch}
    example = inputs(block, 3, 20 if method == "forward" else 1)
    exported = torch.export.export(flat, example, dynamic_shapes=(u, {0: batch}, {0: batch})).module()

    for size in (1, 2, 5):
        for length in LENGTHS if method == "forward" else (1,):
            arguments = inputs(block, size, length)
            require_same(exported(*arguments), flat(*arguments))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_compiled_step_of_a_forecaster_is_one_graph_that_goes_on_from_its_own_state(batch: int) -> None:
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(0)
    model = Forecaster(CONFIG, features=5, targets=2)
    features = torch.randn(batch, 12, 5)
    wanted, last = model(features, model.initial_state(batch))
    compiled = torch.compile(model.step, fullgraph=True, backend="aot_eager")
    got: list[Forecast] = []

    with torch.inference_mode():
        state = model.initial_state(batch)
        for bar in features.split(1, dim=1):
            forecast, state = compiled(bar, state)
            got.append(forecast)

    for name, actual, expected in zip(wanted._fields, zip(*got, strict=True), wanted, strict=True):
        require_close(name, torch.cat(actual, 1), expected)
    for layer, expected in zip(state, last, strict=True):
        require_same((wanted.mean, *layer), (wanted.mean, *expected))
    assert counters["stats"]["unique_graphs"] == 1
