"""Two runs side by side, their values and their gradients."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from mamba2.verify import reference
from mamba2.verify.checks import TOLERANCES, no_worse, relative_error, require, require_bitwise, require_close
from mamba2.verify.reference import State
from mamba2.verify.strategies import Source
from mamba2.verify.trial import Inputs, Run, Trial


def require_same(what: str, actual: Run, expected: Run, *, tolerance: float | None = None) -> None:
    """Outputs and, where they are claimed, the states after them; judged by the dtype of `actual`."""
    _require_near(f"outputs {what}", actual.outputs, expected.outputs, tolerance)
    require_same_state(what, actual.tensors, expected.tensors, tolerance=tolerance)


def require_same_state(what: str, actual: State, expected: State, *, tolerance: float | None = None) -> None:
    """Every tensor of a state, if there is one."""
    for name, tensor in actual.items():
        require(name in expected, f"state {name} {what}: the textbook has none; it has {', '.join(expected)}.")
        _require_near(f"state {name} {what}", tensor, expected[name], tolerance)


def require_same_bits(what: str, actual: Run, expected: Run) -> None:
    """The same without rounding."""
    require_bitwise(f"outputs {what}", actual.outputs, expected.outputs)
    for name, tensor in actual.tensors.items():
        require_bitwise(f"state {name} {what}", tensor, expected.tensors[name])


def _require_near(what: str, actual: Tensor, expected: Tensor, tolerance: float | None) -> None:
    allowed = TOLERANCES[actual.dtype].outputs if tolerance is None else tolerance
    require_close(what, actual.to(expected.dtype), expected, tolerance=allowed)


Leaves = dict[str, Tensor]
Program = Callable[[Inputs, State], Run]
"""Something that runs inputs from a state under the textbook's names."""


def leaves(trial: Trial) -> Leaves:
    """All that a run can be differentiable by: inputs, the state before, parameters."""
    names = trial.implementation.inputs
    found: Leaves = {name: each.detach().clone() for name, each in zip(names, trial.inputs, strict=True)}
    if trial.claims("initial state", "state gradients"):
        found |= {f"state {name}": each.detach().clone() for name, each in trial.before.items()}
    found |= trial.subject.parameters()
    return {name: each.requires_grad_() for name, each in found.items()}


def gradients(trial: Trial, at: Leaves, program: Program) -> dict[str, Tensor]:
    """Those of a weighted sum of outputs and, where it is claimed, of the state after them."""
    inputs = tuple(at[name] for name in trial.implementation.inputs)
    before = {name: at.get(f"state {name}", each) for name, each in trial.before.items()}
    run = program(inputs, before)
    results = [run.outputs]
    if trial.claims("state", "state gradients"):
        results += [run.tensors[name] for name in trial.before]
    weights = Source(0)
    total = torch.zeros((), dtype=run.outputs.dtype)
    for each in results:
        total = total + (each * weights.uniform(0.5, 1.5, *each.shape).to(each.dtype)).sum()
    found = torch.autograd.grad(total, list(at.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(at, found, strict=True))


def textbook_program(trial: Trial, dtype: torch.dtype = torch.float64) -> Program:
    """The loop in this dtype."""
    return lambda inputs, before: trial.textbook(inputs, before, dtype=dtype)


def own_program(trial: Trial) -> Program:
    """The implementation in one go."""
    return lambda inputs, before: trial.run(inputs, trial.start(before))


def require_same_gradients(
    what: str,
    actual: dict[str, Tensor],
    expected: dict[str, Tensor],
    scales: dict[str, Tensor],
    rough: dict[str, Tensor] | None = None,
) -> None:
    """Each against its own scale; by the ratio rule where `rough` are the textbook's in the same dtype."""
    for name, gradient in actual.items():
        tolerance = TOLERANCES[gradient.dtype].gradients
        # An error below the smallest normal number is none: numbers there have few digits.
        scale = scales[name].clamp_min(torch.finfo(gradient.dtype).tiny / tolerance)
        if rough is not None:
            tolerance = no_worse(relative_error(rough[name], expected[name], scale), tolerance)
        require_close(
            f"gradient of {name} {what}", gradient.double(), expected[name].double(), scale=scale, tolerance=tolerance
        )


def gradient_scales(trial: Trial, at: Leaves, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """What the gradients are measured by: sums without cancellation where they can be had, else the largest of all."""
    if trial.implementation.level == "scan":
        return _scan_scales(trial, at)
    largest = _largest(expected.values())
    return dict.fromkeys(expected, largest)


def _scan_scales(trial: Trial, at: Leaves) -> dict[str, Tensor]:
    """Gradients of the textbook on absolute values.

    A chunked form adds terms to the gradient of the log decay and takes them away again, those of x with its own y, so
    what it can be judged by is not smaller than they are.
    """
    with torch.no_grad():
        x, dt, A, B, C = (at[name].double() for name in trial.implementation.inputs)
        before = {name: at.get(f"state {name}", each).double().abs() for name, each in trial.before.items()}
    decayed = (x.abs() * dt[..., None], dt * A, B.abs(), C.abs(), before["ssm"])
    scaled, log_decay, B, C, ssm = (each.detach().requires_grad_() for each in decayed)
    # dt·A as one leaf: dt is 1, and each step has an A of its own.
    ones, outputs, after = torch.ones_like(dt[:, :1]), scaled[:, :0], ssm
    for t in range(dt.shape[1]):
        now = slice(t, t + 1)
        y, after = reference.scan(scaled[:, now], ones, log_decay[:, t], B[:, now], C[:, now], after)
        outputs = torch.cat((outputs, y), dim=1)
    total = 1.5 * (outputs.sum() + after.sum())
    of = torch.autograd.grad(total, (scaled, log_decay, B, C, ssm), allow_unused=True, materialize_grads=True)
    own = (of[0] * scaled).sum(-1)
    of_decay = torch.maximum(of[1].abs(), own)
    return {
        "x": of[0] * dt[..., None],
        "dt": of_decay * A.abs() + own / dt,
        "A": (of_decay * dt).sum((0, 1)),
        "B": of[2],
        "C": of[3],
        "state ssm": of[4],
    }


def _largest(tensors: Iterable[Tensor]) -> Tensor:
    return torch.stack([each.abs().max() for each in tensors if each.numel()]).max().double()
