"""Laws about one function in several ways through time: L3, L4, L5, L6, L8, L9, L22."""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from mamba2.verify.checks import TOLERANCES, require_bitwise, require_close, require_zero
from mamba2.verify.laws.compare import require_same
from mamba2.verify.laws.law import law
from mamba2.verify.reference import state_shapes
from mamba2.verify.strategies import Source
from mamba2.verify.trial import Run, Trial, build


@law(3, needs=("step",))
def a_run_is_a_prefill_and_then_steps(trial: Trial) -> None:
    """From a prefill of any length, none and shorter than the convolution's window included, single steps give what
    one run gives, and end in its state."""
    whole, cut, time = trial.run(), trial.case.cut, trial.case.time
    if not time:
        return
    require_same("step by step", trial.steps(trial.inputs, trial.start()), whole)
    if 0 < cut < time and trial.claims("state"):
        first = trial.run(trial.window(trial.inputs, 0, cut))
        rest = trial.steps(trial.window(trial.inputs, cut, time), first.state)
        joined = rest._replace(outputs=torch.cat((first.outputs, rest.outputs), dim=1))
        require_same(f"stepping on from t={cut}", joined, whole)


@law(4, needs=("state", "resume"))
def stopping_and_going_on_changes_nothing(trial: Trial) -> None:
    """Cut into any parts, also of one step or shorter than the convolution's window: the outputs and the state of one
    run."""
    parts = [part for part in trial.case.parts if part[0] < part[1] or trial.claims("empty")]
    if parts:
        where = ", ".join(map(str, trial.case.cuts)) or "nowhere"
        require_same(f"stopped at {where}", trial.in_parts(parts), trial.run())


@law(5, levels=("scan", "block", "model"))
def the_chunk_changes_nothing(trial: Trial) -> None:
    """Every chunk size at every length, a multiple or not, gives the same outputs and state."""
    expected = trial.run()
    for chunk in {1, max(1, trial.case.time), trial.case.time + 3} - {trial.case.chunk}:
        other = Trial(trial.implementation, trial.case)
        other.subject = build(trial.implementation, replace(trial.config, chunk=chunk), trial.case)
        require_same(f"with chunk {chunk}", other.run(), expected)


@law(6)
def the_past_does_not_see_the_future(trial: Trial) -> None:
    """Inputs that are the same up to t give outputs that are the same up to t, bit for bit, and the gradient of these
    by later inputs is exactly 0."""
    cut, time = trial.case.cut, trial.case.time
    noise = Source(trial.case.seed + 2)

    def later(each: torch.Tensor) -> torch.Tensor:
        other = noise.uniform(0.1, 1.0, *each[:, cut:].shape).to(each.dtype)  # dt has to stay positive
        return torch.cat((each[:, :cut], other), dim=1)

    inputs = trial.tracked()
    past = trial.run(inputs).outputs[:, :cut]
    require_bitwise(
        f"outputs before t={cut}, later inputs changed", trial.run(trial.select(inputs, later)).outputs[:, :cut], past
    )
    if trial.claims("gradients") and 0 < cut < time:
        timed = [each for each in inputs if each.requires_grad]
        found = torch.autograd.grad(past.sum(), timed, allow_unused=True, materialize_grads=True)
        for gradient in found:
            require_zero(f"gradient of outputs before t={cut} by inputs from there on", gradient[:, cut:])


@law(8, levels=("block", "model"), needs=("padding",))
def pads_are_as_if_they_were_not_there(trial: Trial) -> None:
    """Pads to the left, to the right and in between, whatever they hold, leave the outputs at real steps and the state
    after the last of them as in the run without."""
    case = trial.case
    mask = Source(case.seed + 3).uniform(0, 1, case.batch, case.time) < 0.6
    padded = trial.select(trial.inputs, lambda each: each.masked_fill(~mask[..., None], case.pad))
    actual = trial.as_run(*trial.subject.run_padded(*padded, trial.start(), mask))
    for row in range(case.batch):
        if not (mask[row].any() or trial.claims("empty")):
            continue
        real = trial.select(trial.inputs, lambda each, row=row: each[row : row + 1, mask[row]])
        before = {name: each[row : row + 1] for name, each in trial.before.items()}
        alone = trial.run(real, trial.start(before, batch=1))
        got = actual._replace(
            outputs=actual.outputs[row : row + 1, mask[row]],
            tensors={name: each[row : row + 1] for name, each in actual.tensors.items()},
        )
        require_same(f"of row {row} with pads {(~mask[row]).nonzero().flatten().tolist()}", got, alone)


@law(9, levels=("block", "model"), needs=("packing",))
def packed_sequences_do_not_know_of_each_other(trial: Trial) -> None:
    """Sequences packed into one row, of any length and none, give the outputs and the states of each alone, and no
    gradient goes from one into another; a step past the last sequence changes nothing, or is refused."""
    parts = [part for part in trial.case.parts if part[0] < part[1] or trial.claims("empty")]
    if not parts or not trial.case.batch:
        return
    row = trial.tracked(trial.rows(trial.inputs, torch.tensor([0])))
    cu_seqlens = torch.tensor([parts[0][0], *(end for _, end in parts)])
    source = Source(trial.case.seed + 4)
    shapes = state_shapes(trial.implementation.level, trial.config, len(parts))
    before = {name: source.normal(*shape).to(trial.before[name].dtype) for name, shape in shapes.items()}
    packed = trial.as_run(*trial.subject.run_packed(*row, trial.start(before, batch=len(parts)), cu_seqlens))
    for index, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
        own = {name: each[index : index + 1] for name, each in before.items()}
        alone = trial.run(trial.window(row, begin, end), trial.start(own, batch=1))
        got = packed._replace(
            outputs=packed.outputs[:, begin:end],
            tensors={name: each[index : index + 1] for name, each in packed.tensors.items()},
        )
        require_same(f"of the sequence {begin}…{end}", got, alone)
        if begin < end and trial.claims("gradients"):
            _require_own_gradients(trial, row, (got, alone), (begin, end))
    _require_no_tail(trial, row, before, cu_seqlens, packed)


def _require_own_gradients(
    trial: Trial, row: tuple[Tensor, ...], runs: tuple[Run, Run], sequence: tuple[int, int]
) -> None:
    """The gradients of a packed sequence are those of the sequence alone, and zero by the others."""
    begin, end = sequence
    at = {"u": row[0], **trial.subject.parameters()}
    found, wanted = (
        torch.autograd.grad(
            run.outputs.sum(), list(at.values()), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for run in runs
    )
    outside = torch.cat((found[0][:, :begin], found[0][:, end:]), dim=1)
    require_zero(f"gradient of the sequence {begin}…{end} by the others", outside)
    scale = torch.stack([each.abs().max() for each in wanted]).max()
    for name, mine, expected in zip(at, found, wanted, strict=True):
        allowed = TOLERANCES[mine.dtype].gradients
        what = f"gradient of {name} of the sequence {begin}…{end}"
        require_close(what, mine, expected, scale=scale, tolerance=allowed)


def _require_no_tail(
    trial: Trial, row: tuple[Tensor, ...], before: dict[str, Tensor], cu_seqlens: Tensor, packed: Run
) -> None:
    """A step past the last sequence is refused, or changes nothing."""
    longer = trial.select(row, lambda each: torch.cat((each, torch.full_like(each[:, :1], 3.0)), dim=1))
    state = trial.start(before, batch=len(cu_seqlens) - 1)
    try:
        outputs, after = trial.subject.run_packed(*longer, state, cu_seqlens)
    except (ValueError, TypeError):
        return
    require_same("with a step past the last sequence", trial.as_run(outputs[:, : row[0].shape[1]], after), packed)


@law(22, levels=("block", "model"), needs=("state", "resume", "positions"))
def positions_left_out_go_on_from_the_state(trial: Trial) -> None:
    """What depends on positions continues from the state's length where they are not given."""
    cut, time = trial.case.cut, trial.case.time
    if not 0 < cut < time:
        return
    whole = trial.run()
    first = trial.run(trial.window(trial.inputs, 0, cut))
    rest = trial.window(trial.inputs, cut, time)
    told = trial.as_run(*trial.subject.run_at(*rest, first.state, torch.arange(cut, time)))
    untold = trial.run(rest, first.state)
    expected = whole._replace(outputs=whole.outputs[:, cut:])
    require_same(f"going on from t={cut} with positions", told, expected)
    require_same(f"going on from t={cut} without positions", untold, expected)
