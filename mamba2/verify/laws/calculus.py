"""The law about gradients: L14."""

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
    in one run, across a stop, and step by step."""
    at = leaves(trial)
    expected = gradients(trial, at, textbook_program(trial))
    scales = gradient_scales(trial, at, expected)
    require_same_gradients("of a run", gradients(trial, at, own_program(trial)), expected, scales)
    if trial.claims("state", "resume", "state gradients") and 0 < trial.case.cut < trial.case.time:

        def stopping(inputs: Inputs, before: State) -> Run:
            first = trial.run(trial.window(inputs, 0, trial.case.cut), trial.start(before))
            rest = trial.run(trial.window(inputs, trial.case.cut, trial.case.time), first.state)
            return rest._replace(outputs=torch.cat((first.outputs, rest.outputs), dim=1))

        where = f"across a stop at t={trial.case.cut}"
        require_same_gradients(where, gradients(trial, at, stopping), expected, scales)
    if trial.claims("step", "state gradients") and trial.case.time:
        steps = gradients(trial, at, lambda inputs, before: trial.steps(inputs, trial.start(before)))
        require_same_gradients("step by step", steps, expected, scales)
