"""How far float32 is from the recurrence in float64, time step after time step."""

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.contenders import Contender, Ours
from mamba2.model.backbone import Backbone


class Accuracy(NamedTuple):
    """Largest error over largest value: of the output, of any gradient, and of the output in steps."""

    output: float
    gradient: float
    step: float


def recurrence(backbone: Backbone, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Output and gradients in float64, one step after the other."""
    exact = copy.deepcopy(backbone).double()
    x = x.double().requires_grad_()
    y, _ = _in_steps(Ours(exact), x)
    (y * _weight(y)).sum().backward()
    return y.detach(), [x.grad, *(each.grad for each in exact.parameters())]


def accuracy(contender: Contender, x: Tensor, exact: tuple[Tensor, list[Tensor]]) -> Accuracy:
    """Judges one contender; of one that names its parameters otherwise the input's gradient only."""
    wanted, gradients = exact
    x = x.clone().requires_grad_()
    parameters = contender.parameters() if isinstance(contender, Ours) else []
    y = contender.run(x)
    got = torch.autograd.grad((y * _weight(y)).sum(), [x, *parameters])
    with torch.no_grad():
        stepped, _ = _in_steps(contender, x)
    worst = max(_error(a, b) for a, b in zip(got, gradients[: len(got)], strict=True))
    return Accuracy(_error(y, wanted), worst, _error(stepped, wanted))


def strong_decay(backbone: Backbone) -> Backbone:
    """The same with A = 16 and dt about 1: each step forgets nearly all."""
    strong = copy.deepcopy(backbone)
    with torch.no_grad():
        for block in strong.blocks:
            block.A_log.fill_(math.log(16.0))
            block.dt_bias.fill_(math.log(math.e - 1))
    return strong


def _in_steps(contender: Contender, x: Tensor) -> tuple[Tensor, object]:
    state, outputs = contender.start(len(x)), []
    for t in range(x.shape[1]):
        y, state = contender.step(x[:, t : t + 1], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def _weight(y: Tensor) -> Tensor:
    """Fixed numbers of order 1."""
    return torch.linspace(-1.0, 1.0, y.numel(), dtype=y.dtype, device=y.device).view(y.shape)


def _error(got: Tensor, wanted: Tensor) -> float:
    return float((got.detach().double() - wanted).abs().max() / wanted.abs().max())
