"""The run that failed: [32, 60, 512] met a weight [512, 16] where B, broadcast over the batch, should have been.

Both paths take these sizes and agree, and the old mistakes are refused where they are made.
"""

import re
from functools import partial

import pytest
import torch
from torch import nn

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.block import Mamba2Block
from mamba2.ops.scan import prepare_scan_input, scan_chunked, scan_sequential, scan_step
from mamba2.verify.checks import require_close

BATCH, TIME, CONFIG = 32, 60, ModelConfig(d_model=256, d_state=16, expand=2, headdim=64)

FAULTS = {
    "B of one sequence": (
        torch.zeros(1, TIME, 1, 16),
        "axis 'batch' is 1 in B (1, 60, 1, 16) but 32 in x (32, 60, 8, 64).",
        "the batch is missing: expand B over it.",
    ),
    "B without a batch": (
        torch.zeros(TIME, 1, 16),
        "B must have 4 axes (batch time group state); got 3: (60, 1, 16).",
        "the batch is missing: expand B over it.",
    ),
    "the projection's weight": (
        nn.Parameter(torch.zeros(512, 16)),
        "B must have 4 axes (batch time group state); got 2: (512, 16).",
        "B is a weight, not an activation: was the layer passed in place of its output?",
    ),
}


@pytest.fixture
def block() -> Mamba2Block:
    torch.manual_seed(0)
    return Mamba2Block(CONFIG)


def projected() -> list[torch.Tensor]:
    """x, dt or its decay, B and C."""
    source = torch.Generator().manual_seed(0)
    shapes = [(BATCH, TIME, 8, 64), (BATCH, TIME, 8), (BATCH, TIME, 1, 16), (BATCH, TIME, 1, 16)]
    x, dt, B, C = (torch.randn(shape, generator=source) for shape in shapes)
    return [x, -dt.abs(), B, C]


def test_the_projections_input_had_the_sizes_of_the_message(block):
    assert (BATCH, TIME, CONFIG.d_inner, CONFIG.d_state) == (32, 60, 512, 16)
    assert block.out_proj.in_features == 512


def test_chunks_and_single_steps_agree():
    inputs, state = projected(), torch.zeros(BATCH, 8, 64, 16)
    y, last = scan_chunked(*inputs, state, chunk=CONFIG.chunk)

    steps = []
    for t in range(TIME):
        each, state = scan_step(*(tensor[:, t : t + 1] for tensor in inputs), state)
        steps.append(each)

    require_close("y", y, torch.cat(steps, dim=1))
    require_close("state", last, state)


def test_a_training_pass_and_live_steps_agree(block):
    u, state = torch.randn(BATCH, TIME, 256), block.initial_state(BATCH)
    with torch.no_grad():
        y, last = block(u, state)

        steps = []
        for t in range(TIME):
            each, state = block.step(u[:, t : t + 1], state)
            steps.append(each)

    require_close("y", torch.cat(steps, dim=1), y)
    require_close("ssm state", state.ssm, last.ssm)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scan", [scan_sequential, partial(scan_chunked, chunk=64)], ids=["sequential", "chunked"])
def test_the_old_mistake_is_refused_by_the_scans(scan, fault):
    x, log_decay, _, C = projected()
    B, message, hint = FAULTS[fault]

    with pytest.raises(ShapeError, match=f"^scan_[a-z]+: {re.escape(message)}\n(.*\n)+  hint: {re.escape(hint)}$"):
        scan(x, log_decay, B, C, torch.zeros(BATCH, 8, 64, 16))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_old_mistake_is_refused_by_the_shared_preparation(fault):
    x, dt, _, C = projected()
    B, message, hint = FAULTS[fault]

    with pytest.raises(
        ShapeError, match=f"^prepare_scan_input: {re.escape(message)}\n(.*\n)+  hint: {re.escape(hint)}$"
    ):
        prepare_scan_input(x, dt, torch.zeros(8), B, C, torch.zeros(8), dt_range=CONFIG.dt_range)
