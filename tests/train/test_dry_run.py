"""The dry run takes a training step without data, and finds the fault that this project began with."""

from dataclasses import replace

import pytest
import torch

from mamba2.config import RunConfig
from mamba2.errors import ShapeError
from mamba2.model import block
from mamba2.model.forecaster import Forecaster
from mamba2.ops.fused import tile
from mamba2.train.dry_run import DryRun, dry_run


def test_a_sound_config_takes_a_step(config: RunConfig, model: Forecaster) -> None:
    parameters = sum(each.numel() for each in model.parameters())

    assert dry_run(config) == DryRun(parameters=parameters, batch=4, time=8, features=9)


@pytest.mark.parametrize(("batch", "window", "tried"), [(9, 5000, (2, 1024)), (9, 500, (4, 500)), (1, 2000, (1, 1024))])
def test_a_large_step_is_tried_on_a_part(batch, window, tried, config) -> None:
    config = replace(config, data=replace(config.data, window=window), train=replace(config.train, batch=batch))
    found = dry_run(config)

    assert (found.batch, found.time) == tried


@pytest.mark.parametrize(
    ("module", "function", "position"), [(block, "prepare_scan_input", 3), (tile, "scan_forward", 3)]
)
def test_the_old_fault_is_named_without_data(module, function, position, config, monkeypatch) -> None:
    sound = getattr(module, function)

    def unbroadcast(*args, **kwargs):
        return sound(*args[:position], args[position][:1], *args[position + 1 :], **kwargs)

    monkeypatch.setattr(module, function, unbroadcast)
    if module is block:
        monkeypatch.setattr(block, "why_composed", lambda *_: "it is asked for")

    with pytest.raises(ShapeError, match=rf"^{function}: axis 'batch' is 1 in B \(1, .*\) but 4 in x "):
        dry_run(config)


def test_the_precision_is_the_configs(config, monkeypatch) -> None:
    forms = []
    sound = block.why_composed
    monkeypatch.setattr(block, "why_composed", lambda *args: forms.append(sound(*args)) or forms[-1])
    dry_run(replace(config, train=replace(config.train, precision="bf16")))

    assert len(forms) == config.model.layers
    assert None not in forms  # the fast form knows no autocast


def test_nothing_fake_is_left_behind(config: RunConfig) -> None:
    dry_run(config)

    assert torch.ones(2).sum().item() == 2
