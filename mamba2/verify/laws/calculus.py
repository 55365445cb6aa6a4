"""The law about gradients: L14."""

from functools import partial

import torch

from mamba2.verify.laws.compare import (
    gradient_scales,
    gradients,
    leaves,
    own_program,
    require_same_gradients,
    textbook_program,
)
from mamba2.verify.laws.law import law
from mamba2.verify.reference import State
from mamba2.verify.trial import Inputs, Run, Trial


@law(14, needs=("gradients",), values=("ordinary", "huge steps"))
def gradients_are_the_textbooks(trial: Trial) -> None:
    """Gradients by inputs, parameters and the state before, of outputs and of the state after, are the float64 loop's:
    in one run, across a stop, and step by step; after huge steps they err at most twice as much as the loop does in the
    same dtype."""
    at = leaves(trial)
    expected = gradients(trial, at, textbook_program(trial))
    scales = gradient_scales(trial, at, expected)
    huge = trial.case.values == "huge steps"
    rough = gradients(trial, at, textbook_program(trial, trial.case.torch_dtype)) if huge else None
    require = partial(require_same_gradients, expected=expected, scales=scales, rough=rough)
    require("of a run", gradients(trial, at, own_program(trial)))
    if trial.claims("state", "resume", "state gradients") and 0 < trial.case.cut < trial.case.time:

        def stopping(inputs: Inputs, before: State) -> Run:
            first = trial.run(trial.window(inputs, 0, trial.case.cut), trial.start(before))
            rest = trial.run(trial.window(inputs, trial.case.cut, trial.case.time), first.state)
            return rest._replace(outputs=torch.cat((first.outputs, rest.outputs), dim=1))

        where = f"across a stop at t={trial.case.cut}"
        require(where, gradients(trial, at, stopping))
    if trial.claims("step", "state gradients") and trial.case.time:
        steps = gradients(trial, at, lambda inputs, before: trial.steps(inputs, trial.start(before)))
        require("step by step", steps)
