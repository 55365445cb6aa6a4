"""Laws about sequences side by side and about states as values: L7, L15."""

import copy
from collections import Counter

import torch
from torch import Tensor

from mamba2.verify.checks import require, require_bitwise, require_finite, require_zero
from mamba2.verify.laws.compare import require_same, require_same_bits
from mamba2.verify.laws.law import law
from mamba2.verify.reference import State
from mamba2.verify.strategies import Source
from mamba2.verify.trial import Run, Trial


@law(7)
def a_sequence_does_not_see_the_others(trial: Trial) -> None:
    """Each sequence of a batch gives what it gives alone; a NaN or a gradient in one reaches no other."""
    batch = trial.case.batch
    whole = trial.run()
    for row in range(batch):
        require_same(f"of row {row} alone", _run_rows(trial, torch.tensor([row])), _rows_of(whole, torch.tensor([row])))
    if batch < 2 or not trial.case.time:
        return
    if trial.claims("gradients"):
        inputs = trial.tracked()
        total = trial.run(inputs).outputs[0].sum()
        timed = [each for each in inputs if each.requires_grad]
        for gradient in torch.autograd.grad(total, timed, allow_unused=True, materialize_grads=True):
            require_zero("gradient of row 0 by the others", gradient[1:])
    broken = trial.select(trial.inputs, lambda each: torch.cat((each[:-1], torch.full_like(each[-1:], torch.nan))))
    require_finite("outputs of the rows beside one of NaN", trial.run(broken).outputs[:-1])


@law(15, needs=("state",))
def a_state_is_a_value(trial: Trial) -> None:
    """Runs and steps leave the state they were given, the inputs and the parameters as they were; going on twice, or
    from a copy, gives the same bits; choosing, repeating and reordering rows commutes with running. What is kept of a
    run is no larger than twice the state, so a view of the whole sequence is none."""
    first = trial.run()
    _require_small("after a run", first)
    if trial.can_step:
        _require_small("after steps", trial.steps(trial.inputs, trial.start()))
    if trial.claims("resume") and trial.case.time:
        _require_untouched(trial, first)
    elif trial.case.time:
        require_same_bits("of a second run from the start", trial.run(), first)
    if trial.claims("initial state") and trial.case.batch:
        rows = (Source(trial.case.seed + 5).uniform(0, trial.case.batch, trial.case.batch + 1)).long()
        require_same(f"of rows {rows.tolist()}", _run_rows(trial, rows), _rows_of(first, rows))


def _require_small(when: str, run: Run) -> None:
    """The memory behind the state's tensors, shared or not, is at most twice theirs: a window has room for one more."""
    memory = {name: each.untyped_storage() for name, each in run.tensors.items()}
    own = Counter[int]()
    for name, each in run.tensors.items():
        own[memory[name].data_ptr()] += each.nbytes
    for name, storage in memory.items():
        allowed = 2 * own[storage.data_ptr()]
        require(
            storage.nbytes() <= allowed or run.tensors[name].numel() == 0,
            f"state {name} {when}: keeps {storage.nbytes():,} bytes of memory, expected at most {allowed:,}, twice its "
            "own. A view keeps the whole sequence: copy it.",
        )


@torch.no_grad()
def _require_untouched(trial: Trial, first: Run) -> None:
    """Goes on from the state after `first` in every way there is, and looks at it afterwards."""
    state = trial.run().state
    copied = copy.deepcopy(state)
    before = {name: each.clone() for name, each in trial.read(state).items()}
    values = [each.clone() for each in (*trial.inputs, *trial.subject.parameters().values())]
    once = trial.run(trial.inputs, state)
    require_same_bits("going on a second time", trial.run(trial.inputs, state), once)
    require_same_bits("going on from a copy", trial.run(trial.inputs, copied), once)
    if trial.claims("step"):
        trial.steps(trial.inputs, state)
    for name, each in trial.read(state).items():
        require_bitwise(f"state {name} that was gone on from", each, before[name])
    for index, (each, value) in enumerate(
        zip((*trial.inputs, *trial.subject.parameters().values()), values, strict=True)
    ):
        require_bitwise(f"input or parameter {index} after a run", each, value)
    require_same_bits("from the start, after all that", trial.run(), first)


def _run_rows(trial: Trial, rows: Tensor) -> Run:
    before: State = {name: each[rows] for name, each in trial.before.items()}
    return trial.run(trial.rows(trial.inputs, rows), trial.start(before, batch=len(rows)))


def _rows_of(run: Run, rows: Tensor) -> Run:
    return run._replace(outputs=run.outputs[rows], tensors={name: each[rows] for name, each in run.tensors.items()})
