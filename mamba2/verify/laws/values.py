"""Laws about one run beside the textbook: L1, L2, L10, L11, L12, L13, L21."""

import torch

from mamba2.verify.checks import (
    TOLERANCES,
    MismatchError,
    no_worse,
    relative_error,
    require,
    require_close,
    require_finite,
    require_shape,
)
from mamba2.verify.laws.compare import gradients, leaves, own_program, require_same
from mamba2.verify.laws.law import law
from mamba2.verify.trial import Run, Trial


@law(1)
def shapes_follow_from_the_sizes_alone(trial: Trial) -> None:
    """Outputs and states have exactly the textbook's shapes, in one run and in one step, whatever the sizes."""
    expected = trial.textbook(dtype=torch.float64)
    _require_shapes("of a run", trial.run(), expected)
    if trial.can_step:
        first = trial.window(trial.inputs, 0, 1)
        expected = trial.textbook(first, dtype=torch.float64)
        _require_shapes("of a step", trial.as_run(*trial.subject.step(*first, trial.start())), expected)


@law(2)
def a_run_is_the_textbook(trial: Trial) -> None:
    """S[t] = exp(dt A) S[t-1] + dt x ⊗ B, y = S C + D x, convolution and gated norm as defined: the float64 loop."""
    require_same("beside the textbook", trial.run(), trial.textbook(dtype=torch.float64))


@law(10, levels=("scan", "block", "model"), needs=("groups",))
def head_h_reads_group_h_G_over_H(trial: Trial) -> None:
    """Head h reads B and C of group ⌊h·G/H⌋, in a run and in steps, and each group is normed by itself."""
    expected = trial.textbook(dtype=torch.float64)
    require_same("with groups", trial.run(), expected)
    if trial.can_step:
        require_same("with groups, step by step", trial.steps(trial.inputs, trial.start()), expected)


@law(11, levels=("block", "model"), values=("ordinary", "small steps"))
def dt_is_softplus_then_limits_once_on_every_path(trial: Trial) -> None:
    """dt = clamp(softplus(dt + dt_bias), dt_range), with the range configured and no other, in a run and in steps."""
    expected = trial.textbook(dtype=torch.float64)
    require_same("with dt limited", trial.run(), expected)
    if trial.can_step:
        require_same("with dt limited, step by step", trial.steps(trial.inputs, trial.start()), expected)


@law(12, values=("ordinary", "huge steps"), halves=True)
def precision_is_that_of_the_dtype(trial: Trial) -> None:
    """Inputs' dtype = outputs' dtype, states in float32 or wider; half precision errs at most twice as much as the
    textbook does in it; one huge dt among small ones costs float32 no more than 1e-4."""
    dtype = trial.case.torch_dtype
    exact, run = trial.textbook(dtype=torch.float64), trial.run()
    require(run.outputs.dtype == dtype, f"outputs: dtype is {run.outputs.dtype}, expected {dtype}.")
    for name, tensor in run.tensors.items():
        wide = not name.endswith("ssm") or tensor.dtype.itemsize >= 4
        require(wide, f"state {name}: dtype is {tensor.dtype}, expected float32 or wider.")
    if dtype.itemsize >= 4:
        tolerance = TOLERANCES[dtype].hard if trial.case.values == "huge steps" else TOLERANCES[dtype].outputs
        require_same("beside the textbook", run, exact, tolerance=tolerance)
        return
    rough = relative_error(trial.textbook(dtype=dtype).outputs, exact.outputs)
    allowed = no_worse(rough, TOLERANCES[dtype].outputs)
    require_close("outputs in half precision", run.outputs.double(), exact.outputs, tolerance=allowed)


@law(13, values=("huge steps", "ordinary"))
def what_is_finite_stays_finite(trial: Trial) -> None:
    """dt in 0 … 1e6 and |A| up to 1e3 give finite outputs, states and gradients."""
    run = trial.run()
    require_finite("outputs", run.outputs)
    for name, tensor in run.tensors.items():
        require_finite(f"state {name}", tensor)
    if not trial.claims("gradients"):
        return
    for name, gradient in gradients(trial, leaves(trial), own_program(trial)).items():
        require_finite(f"gradient of {name}", gradient)


@law(21, may_be_empty=True)
def the_smallest_sizes_work_or_are_refused(trial: Trial) -> None:
    """No sequences, no steps, one step, a convolution of one, one head, one group: the textbook's results, with the
    state unchanged by no steps, or a ValueError or TypeError."""
    try:
        run = trial.run()
    except (ValueError, TypeError) as refusal:
        if trial.claims("empty") or (trial.case.batch and trial.case.time):
            raise MismatchError(f"run: refused sizes that it must take: {refusal}") from refusal
        return
    require_same("beside the textbook", run, trial.textbook(dtype=torch.float64))


def _require_shapes(what: str, actual: Run, expected: Run) -> None:
    require_shape(f"outputs {what}", actual.outputs, tuple(expected.outputs.shape))
    for name, tensor in actual.tensors.items():
        require(name in expected.tensors, f"state {name} {what}: expected only {', '.join(expected.tensors)}.")
        require_shape(f"state {name} {what}", tensor, tuple(expected.tensors[name].shape))
