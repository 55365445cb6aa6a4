"""The residual stack on numbers done by hand."""

import re

import pytest
import torch
from torch import nn

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.backbone import Backbone
from mamba2.model.block import Mamba2Block
from mamba2.ops.norm import rms_norm
from mamba2.verify.checks import require_close

CONFIG = ModelConfig(d_model=2, layers=3, headdim=2, d_state=2, bias=True, norm_eps=1e-30)


def test_each_block_adds_to_the_stream_and_the_sum_is_normed():
    backbone = Backbone(CONFIG)
    with torch.no_grad():
        for block in backbone.blocks:
            block.out_proj.weight.zero_()
            block.out_proj.bias.copy_(torch.tensor([1.0, 2.0]))
        backbone.last_norm_weight.copy_(torch.tensor([10.0, 100.0]))

    y, _ = backbone(torch.tensor([[[-2.0, 1.0]]]), backbone.initial_state(1))

    assert y.flatten().tolist() == pytest.approx([2.0, 140.0])  # [1, 7], of root mean square 5


def test_a_block_sees_the_normed_stream():
    backbone = Backbone(CONFIG)
    with torch.no_grad():
        for weight in backbone.norm_weights:
            weight.copy_(torch.tensor([3.0, 5.0]))
    seen = []
    for block in backbone.blocks:
        block.in_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))

    backbone(torch.tensor([[[1.0, 7.0]]]), backbone.initial_state(1))

    assert seen[0].flatten().tolist() == pytest.approx([0.6, 7.0])


def test_there_is_one_state_for_each_layer():
    state = Backbone(CONFIG).initial_state(2)

    assert [tuple(layer.ssm.shape) for layer in state] == [(2, 2, 2, 2)] * 3


def test_each_layer_has_its_own_state():
    backbone = Backbone(CONFIG)

    _, state = backbone(torch.randn(1, 3, 2), backbone.initial_state(1))

    assert len({layer.ssm.sum().item() for layer in state}) == 3


def test_the_output_projections_start_smaller_in_a_deeper_stack():
    config = ModelConfig(d_model=16, layers=4, headdim=8)
    bound = 32**-0.5 / 2

    largest = max(block.out_proj.weight.abs().max().item() for block in Backbone(config).blocks)

    assert largest == pytest.approx(bound, rel=0.05)


def test_the_reference_stack_has_as_many_parameters_as_by_hand():
    assert sum(each.numel() for each in Backbone(ModelConfig()).parameters()) == 6 * (406_712 + 256) + 256


@pytest.mark.parametrize("layers", [2, 4])
def test_another_number_of_states_is_refused_by_name(layers):
    backbone = Backbone(CONFIG)
    state = (backbone.initial_state(1) * 2)[:layers]

    with pytest.raises(ShapeError, match=f"^Backbone: axis 'layer' is {layers} in state but 3 in the model.$"):
        backbone(torch.zeros(1, 1, 2), state)


def test_one_layers_state_of_another_batch_is_refused_by_name():
    backbone = Backbone(CONFIG)
    state = (*backbone.initial_state(2)[:2], backbone.initial_state(1)[2])
    message = "Backbone.forward: axis 'batch' is 1 in state[2].conv (1, 3, 8) but 2 in x (2, 5, 2)."

    with pytest.raises(ShapeError, match=f"^{re.escape(message)}\n"):
        backbone(torch.zeros(2, 5, 2), state)


@pytest.mark.parametrize("time", [0, 7, 8, 9, 16, 30])
@pytest.mark.parametrize("pads", [False, True])
def test_without_grad_mode_segments_give_what_one_pass_gives(time, pads, monkeypatch):
    monkeypatch.setattr("mamba2.model.backbone._SEGMENT", 8)
    torch.manual_seed(time)
    backbone = Backbone(CONFIG).double()
    x = torch.randn(3, time, 2, dtype=torch.float64)
    mask = torch.rand(3, time) < 0.5 if pads else None
    lengths = []
    backbone.blocks[-1].register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))

    expected, state = backbone(x, backbone.initial_state(3), mask)
    with torch.no_grad():
        found, after = backbone(x, backbone.initial_state(3), mask)

    assert lengths == [time] + ([8] * (time // 8) + [time % 8] * (time % 8 > 0) or [0])
    for each, other in zip((found, *sum(after, ())), (expected, *sum(state, ())), strict=True):
        require_close("segments", each, other)


def test_a_layer_is_one_function_with_its_block_and_gives_what_the_block_called_alone_gives():
    torch.manual_seed(0)
    block, norm = Mamba2Block(CONFIG).double(), torch.rand(2, dtype=torch.float64) + 0.5
    x, state = torch.randn(3, 5, 2, dtype=torch.float64), block.initial_state(3)

    found, after = block.residual(x, norm, state)
    y, expected = block(rms_norm(x, norm, eps=CONFIG.norm_eps), state)

    assert found.grad_fn.name() == "_MixerBackward"
    for each, other in zip((found, *after), (x + y, *expected), strict=True):
        require_close("layer", each, other)


@pytest.mark.parametrize(
    "register", ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"]
)
def test_hooks_of_a_block_run_in_a_stack_too(register):
    backbone, calls = Backbone(CONFIG), []
    getattr(backbone.blocks[1], register)(lambda *_: calls.append(register))

    y, _ = backbone(torch.randn(2, 5, 2, requires_grad=True), backbone.initial_state(2))
    y.sum().backward()

    assert calls == [register]


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.parametrize("name", ["in_proj", "out_proj"])
def test_hooks_of_a_projection_run_in_a_stack_too(name, register):
    backbone, calls = Backbone(CONFIG), []
    getattr(getattr(backbone.blocks[1], name), register)(lambda *_: calls.append(register))

    y, _ = backbone(torch.randn(2, 5, 2, requires_grad=True), backbone.initial_state(2))
    y.sum().backward()

    assert calls == [register]


@pytest.mark.parametrize("name", ["", "in_proj", "out_proj"])
def test_a_forward_put_in_place_of_a_modules_own_is_called(name):
    backbone, calls = Backbone(CONFIG), []
    module = backbone.blocks[1].get_submodule(name)
    own = module.forward
    module.forward = lambda *args, **options: calls.append(name) or own(*args, **options)

    backbone(torch.randn(2, 5, 2), backbone.initial_state(2))

    assert calls == [name]


def test_a_block_with_a_forward_of_its_own_is_called():
    class Twice(Mamba2Block):
        def forward(self, *args, **options):
            y, state = super().forward(*args, **options)
            return 2 * y, state

    torch.manual_seed(0)
    backbone, x = Backbone(CONFIG), torch.randn(2, 5, 2)
    for index, block in enumerate(backbone.blocks):
        own = Twice(CONFIG)
        own.load_state_dict(block.state_dict())
        backbone.blocks[index] = own

    plain, _ = backbone(x, backbone.initial_state(2))
    masked, _ = backbone(x, backbone.initial_state(2), torch.ones(2, 5, dtype=torch.bool))

    require_close("outputs", plain, masked)


@pytest.mark.parametrize("because", ["of a hook", "of pads"])
def test_a_layer_in_two_parts_gives_the_same(because):
    torch.manual_seed(1)
    block, norm = Mamba2Block(CONFIG).double(), torch.rand(2, dtype=torch.float64) + 0.5
    x, state = torch.randn(3, 5, 2, dtype=torch.float64), block.initial_state(3)
    mask = torch.tensor([[True, True, False, True, False]] * 3) if because == "of pads" else None
    y, expected = block(rms_norm(x, norm, eps=CONFIG.norm_eps), state, mask)
    if because == "of a hook":
        block.register_forward_hook(lambda *_: None)

    found, after = block.residual(x, norm, state, mask)

    assert found.grad_fn.name() != "_MixerBackward"
    for each, other in zip((found, *after), (x + y, *expected), strict=True):
        require_close("layer", each, other)


def test_hooks_of_all_modules_run_for_blocks_too():
    backbone, seen = Backbone(CONFIG), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))

    with handle:
        backbone(torch.randn(2, 5, 2), backbone.initial_state(2))

    assert seen.count(Mamba2Block) == 3


def test_a_wrapper_around_a_block_is_called():
    class Wrapper(nn.Module):
        def __init__(self, block):
            super().__init__()
            self.block, self.calls = block, 0

        def __getattr__(self, name):
            return super().__getattr__(name) if name == "block" else getattr(self.block, name)

        def forward(self, *args, **options):
            self.calls += 1
            return self.block(*args, **options)

    backbone = Backbone(CONFIG).double()
    x = torch.randn(2, 5, 2, dtype=torch.float64)
    expected, _ = backbone(x, backbone.initial_state(2))
    backbone.blocks[1] = Wrapper(backbone.blocks[1])
    found, _ = backbone(x, backbone.initial_state(2))

    assert backbone.blocks[1].calls == 1
    require_close("output", found, expected)


@pytest.mark.parametrize("mask", [None, torch.ones(2, 5, dtype=torch.bool)])
def test_on_the_meta_device_there_are_shapes_without_numbers(mask):
    backbone = Backbone(CONFIG).to("meta")
    state = backbone.initial_state(2)
    y, last = backbone(torch.empty(2, 5, 2, device="meta"), state, mask if mask is None else mask.to("meta"))
    y.sum().backward()
    step, later = backbone.step(torch.empty(2, 1, 2, device="meta"), last)

    assert (y.shape, step.shape) == ((2, 5, 2), (2, 1, 2))
    assert [[each.shape for each in layer] for layer in later] == [[each.shape for each in layer] for layer in state]
    assert all(each.grad.shape == each.shape for each in backbone.parameters())
