"""Implementations that are broken as somebody's once was, each with the public report and the laws that it breaks.

`python tests/verify/mutants.py [PAGE]` judges them all, prints report → law → smallest counterexample, and writes the
page (docs/mutants.md); the status is 1 if one survives. A release stands where nobody has reported the fault.
"""

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mamba2.errors import ConfigError
from mamba2.model.block import BlockState
from mamba2.model.packing import run_packed
from mamba2.ops.conv import causal_conv1d, causal_conv1d_step
from mamba2.ops.norm import gated_rms_norm
from mamba2.ops.padding import align, restore
from mamba2.ops.scan import prepare_scan_input, scan_chunked, scan_step
from mamba2.verify import laws
from mamba2.verify.adapters import ours
from mamba2.verify.case import Config
from mamba2.verify.implementation import Implementation, check_implementation
from mamba2.verify.laws import Law
from mamba2.verify.runner import Verdict, judge

GITHUB = "https://github.com/"


class Mutant(NamedTuple):
    """A broken implementation; its docstring says in one sentence what is broken."""

    implementation: type[Implementation]
    reports: tuple[str, ...]
    """Paths on GitHub, or a project and its releases where nobody reported it."""
    breaks: tuple[Law, ...]

    @property
    def fault(self) -> str:
        """What is broken."""
        return " ".join((self.implementation.__doc__ or "").split())


MUTANTS: list[Mutant] = []


def reported(*reports: str, breaks: Law | tuple[Law, ...]) -> Callable[[type[Implementation]], type[Implementation]]:
    """Lists a class among the mutants."""

    def add(implementation: type[Implementation]) -> type[Implementation]:
        check_implementation(implementation)
        MUTANTS.append(Mutant(implementation, reports, (breaks,) if isinstance(breaks, Law) else breaks))
        return implementation

    return add


class Pieces(ours.Mamba2):
    """Our block with every piece a method, so that a mutant replaces one; it is not fused and refuses no sizes."""

    claims = ours.Mamba2.claims - {"errors", "compile"}

    def run(self, u: Tensor, state: BlockState) -> Any:
        return self.mix(u, state, self.conv, self.scan)

    def step(self, u: Tensor, state: BlockState) -> Any:
        return self.mix(u, state, self.conv_step, self.scan_step)

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        aligned, order = align(u, mask)
        conv = partial(self.conv, lengths=mask.sum(1))
        y, state = self.mix(aligned, state, conv, self.scan, mask.gather(1, order))
        return restore(y, order, mask), state

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        return run_packed(self.run_padded, u, cu_seqlens, state)

    def mix(
        self,
        u: Tensor,
        state: BlockState,
        conv: Callable[..., tuple[Tensor, Tensor]],
        scan: Callable[..., tuple[Tensor, Tensor]],
        mask: Tensor | None = None,
    ) -> Any:
        gate, xBC, dt = self.module.in_proj(u).split(self.module.config.projection, dim=-1)
        xBC, past = conv(xBC, state.conv)
        x, B, C = self.module._split(F.silu(xBC))
        y, ssm = scan(*self.discretise(x, dt, B, C, mask), state.ssm)
        y = self.norm((y + self.skip(x)).flatten(2), gate)
        return self.module.out_proj(y.to(u.dtype)), BlockState(past, ssm)

    def conv(self, x: Tensor, past: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return causal_conv1d(x, self.module.conv_weight, self.module.conv_bias, past, lengths)

    def conv_step(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        return causal_conv1d_step(x, self.module.conv_weight, self.module.conv_bias, past)

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return self.limited(x, dt, B, C, mask, *self.module.config.dt_range)

    def limited(
        self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None, low: float, high: float
    ) -> tuple[Tensor, ...]:
        block = self.module
        return prepare_scan_input(x, dt, block.A_log, B, C, block.dt_bias, mask, dt_range=(low, high))

    def scan(self, x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return scan_chunked(x, log_decay, B, C, state, chunk=self.module.config.chunk)

    def scan_step(self, x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return scan_step(x, log_decay, B, C, state)

    def skip(self, x: Tensor) -> Tensor | float:
        return self.module._skip(x)

    def norm(self, y: Tensor, gate: Tensor) -> Tensor:
        return self.module._normed(y, gate)


def as_if(other: type[Pieces], subject: Pieces) -> Any:
    """The same block with the pieces of another: for faults of one path alone."""
    twin = other.__new__(other)
    twin.module = subject.module
    return twin


def backward_of(wrong: Tensor, value: Tensor) -> Tensor:
    """Values of one, gradients of the other: a wrong backward pass beside a right forward pass."""
    return value.detach() + (wrong - wrong.detach())


def by_head(tensor: Tensor, heads: int) -> Tensor:
    """B or C of each head."""
    return tensor.repeat_interleave(heads // tensor.shape[2], dim=2)


def seen_at_once(x: Tensor, dt: Tensor, B: Tensor, C: Tensor, state: Tensor, decay: Tensor, entering: Tensor) -> Tensor:
    """y of a scan in one chunk, from the decays (batch, head, to, from) and those of the state (batch, time, head)."""
    B, C = by_head(B, x.shape[2]), by_head(C, x.shape[2])
    y = torch.einsum("bthn,bshn,bhts,bsh,bshp->bthp", C, B, decay, dt, x)
    return y + torch.einsum("bthn,bth,bhpn->bthp", C, entering, state)


def differences(log_decay: Tensor) -> Tensor:
    """Sums of log decays from s to t, wherever they stand: (batch, head, t, s)."""
    total = log_decay.cumsum(1).movedim(1, 2)
    return total[..., :, None] - total[..., None, :]


# Shapes


@reported("huggingface/transformers/issues/33567", breaks=laws.shapes_follow_from_the_sizes_alone)
class StepOfTheWholeBatch(Pieces):
    """A step of two sequences gives two time steps for each."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        y, state = super().step(u, state)
        return y.transpose(0, 1).expand(len(y), -1, -1), state


@reported(
    "transformers 4.53.3–5.22.2, Falcon-H1",
    breaks=(laws.shapes_follow_from_the_sizes_alone, laws.a_sequence_does_not_see_the_others),
)
class OneTokenOfTheWholeBatch(Pieces):
    """A run of one token for each of b sequences gives b tokens for each."""

    def run(self, u: Tensor, state: BlockState) -> Any:
        y, state = super().run(u, state)
        return (y.transpose(0, 1).expand(len(y), -1, -1) if u.shape[1] == 1 else y), state


@reported(
    "state-spaces/mamba/issues/437",
    "state-spaces/mamba/issues/393",
    "state-spaces/mamba/issues/580",
    breaks=(laws.shapes_follow_from_the_sizes_alone, laws.the_past_does_not_see_the_future),
)
class ConvCutAtTheWrongEnd(ours.CausalConv):
    """The convolution pads both sides and cuts its output at the wrong end, if at all."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        width, time = weight.shape[1], x.shape[1]
        longer, _ = causal_conv1d(F.pad(x, (0, 0, 0, width - 1)), weight, bias, state)
        return longer if time < width else longer[:, -time:], causal_conv1d(x, weight, bias, state)[1]


@reported("jxiw/MambaInLlama/issues/27", breaks=laws.shapes_follow_from_the_sizes_alone)
class ConvCutToTheWindow(ours.CausalConv):
    """The output of the convolution is cut to its last width - 1 steps."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = super().run(x, weight, bias, state)
        return y[:, -(weight.shape[1] - 1) :], state


@reported(
    "state-spaces/mamba/issues/414",
    breaks=(laws.shapes_follow_from_the_sizes_alone, laws.a_run_is_a_prefill_and_then_steps),
)
class StepWithDtOfTheWrongRank(ours.ScanSequential):
    """A step takes dt with its axis of time, so that the decay of a head meets the channels."""

    def step(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        B, C = (by_head(each, x.shape[2])[:, 0, :, None] for each in (B, C))
        state = (dt * A).exp()[..., None] * state + (dt[..., None] * x)[:, 0, ..., None] * B
        return (state * C).sum(-1)[:, None], state


# The recurrence


@reported("1bit-MONSTER/1bit-MONSTER/pull/1462", breaks=laws.a_run_is_the_textbook)
class AExponentiatedTwice(Pieces):
    """A_log becomes A when the weights are converted and is exponentiated again on every path."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        block = self.module
        return prepare_scan_input(x, dt, block.A_log.exp(), B, C, block.dt_bias, mask, dt_range=block.config.dt_range)


@reported("minimamba 1.0.1", breaks=laws.a_run_is_the_textbook)
class ParallelScanWithoutItsDecay(ours.ScanSequential):
    """The parallel scan adds what came before without the decay of what came after."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        added = torch.einsum("bth,bthp,bthn->bthpn", dt, x, by_head(B, x.shape[2]))
        states = torch.cat((state[:, None], (dt * A).exp()[..., None, None] * added), dim=1).cumsum(1)
        return torch.einsum("bthpn,bthn->bthp", states[:, 1:], by_head(C, x.shape[2])), states[:, -1]


# Train = step


@reported("huggingface/transformers/pull/35154", breaks=laws.a_run_is_a_prefill_and_then_steps)
class ConvStateInTheWrongOrder(ours.CausalConv):
    """A prefill leaves the past of the convolution in another layout than a step reads."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        return y, after.flip(1)


@reported("huggingface/transformers/issues/47532", breaks=laws.a_run_is_a_prefill_and_then_steps)
class StepWithTheGateOfAnotherRow(Pieces):
    """A step keeps the axis of time, and the kernel reads the gate of one row for all."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        return as_if(GateOfTheFirstRow, self).step(u, state)


class GateOfTheFirstRow(Pieces):
    """Every row has the gate of the first."""

    def norm(self, y: Tensor, gate: Tensor) -> Tensor:
        return super().norm(y, gate[:1].expand_as(gate))


@reported("state-spaces/mamba/issues/887", breaks=laws.a_run_is_a_prefill_and_then_steps)
class DReadPerHeadInStep(Pieces):
    """A step reads one D a head where there is one a channel."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        return as_if(DPerHead, self).step(u, state)


class DPerHead(Pieces):
    """One D a head, the first of its channels'."""

    def skip(self, x: Tensor) -> Tensor | float:
        D = self.module.D
        return 0.0 if D is None else D.view(self.module.config.n_heads, -1)[:, :1] * x


@reported(
    "state-spaces/mamba/pull/743",
    breaks=(laws.a_run_is_a_prefill_and_then_steps, laws.head_h_reads_group_h_G_over_H),
)
class StepOfOneGroupOnly(Pieces):
    """A step asserts that there is one group."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        if self.module.config.n_groups != 1:
            raise AssertionError
        return super().step(u, state)


@reported("fla-org/flash-linear-attention/issues/63", breaks=laws.a_run_is_a_prefill_and_then_steps)
class StepNormsBeforeTheGate(Pieces):
    """Training norms after the gate, a step before it."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        return as_if(AlwaysBeforeTheGate, self).step(u, state)


class AlwaysBeforeTheGate(Pieces):
    """The gated norm is always norm(y)·silu(gate)."""

    def norm(self, y: Tensor, gate: Tensor) -> Tensor:
        weight, config = self.module.norm_weight, self.module.config
        if weight is None:
            return super().norm(y, gate)
        return gated_rms_norm(y, gate, weight, n_groups=config.n_groups, eps=config.norm_eps, before_gate=True)


@reported("mambapy 1.0.0–1.2.0", breaks=laws.a_run_is_a_prefill_and_then_steps)
class StepWithAWindowThatGrows(ours.CausalConv):
    """With a convolution of one, a step cuts nothing off its window."""

    def step(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat((state, x), dim=1)
        y = (window[:, : weight.shape[1]] * weight.T).sum(1, keepdim=True) + bias
        return y, window[:, -(weight.shape[1] - 1) :]


@reported("minimamba 1.0.1", breaks=laws.a_run_is_a_prefill_and_then_steps)
class StepThatCannotRun(Pieces):
    """A step calls a method that tensors do not have."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        return super().step(u, state._replace(conv=state.conv.roll_(-1, 1)))


@reported(
    "tommyip/mamba2-minimal/commit/7423bbe",
    breaks=(laws.a_run_is_a_prefill_and_then_steps, laws.the_chunk_changes_nothing),
)
class FilledChunkInTheState(Pieces):
    """A prefill is filled up to whole chunks, which decay the state and shift the window of the convolution."""

    def run(self, u: Tensor, state: BlockState) -> Any:
        time = u.shape[1]
        y, state = super().run(F.pad(u, (0, 0, 0, -time % self.module.config.chunk)), state)
        return y[:, :time], state


# Split prefill


@reported("huggingface/transformers/issues/46032", breaks=laws.stopping_and_going_on_changes_nothing)
class ContinuedFromZeros(Pieces):
    """A run of more than one step that goes on from a state starts the recurrence from zeros."""

    def run(self, u: Tensor, state: BlockState) -> Any:
        return super().run(u, state._replace(ssm=state.ssm * 0) if u.shape[1] > 1 else state)


@reported(
    "huggingface/transformers/pull/46741",
    "state-spaces/mamba/issues/641",
    breaks=laws.stopping_and_going_on_changes_nothing,
)
class ContinuedFromNothing(ours.Backbone):
    """A run of more than one step starts anew: context of the convolution and state of the recurrence are dropped."""

    def run(self, u: Tensor, state: tuple[BlockState, ...]) -> Any:
        return super().run(u, self.initial_state(len(u)) if u.shape[1] > 1 else state)


@reported("state-spaces/mamba/pull/371", breaks=laws.stopping_and_going_on_changes_nothing)
class LastStateWithoutB(ours.ScanSequential):
    """The state that is given back lacks the factor B where B does not change in time."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, dt, A, B, C, state)
        constant = bool((B - B[:, :1] == 0).all())
        return y, super().run(x, dt, A, torch.ones_like(B), C, state)[1] if constant else after


@reported("vllm-project/vllm/pull/21783", breaks=laws.stopping_and_going_on_changes_nothing)
class InitialStateWithTheWrongSum(ours.ScanChunked):
    """The initial state decays by the sum of the decays before a step, without the step's own."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, dt, A, B, C, torch.zeros_like(state))
        total = (dt * A).cumsum(1)
        entering = torch.einsum("bthn,bth,bhpn->bthp", by_head(C, x.shape[2]), (total - dt * A).exp(), state)
        return y + entering, after + (dt * A).sum(1).exp()[..., None, None] * state


@reported(
    "vllm-project/vllm/pull/22034",
    breaks=(laws.stopping_and_going_on_changes_nothing, laws.a_sequence_does_not_see_the_others),
)
class InitialStateDroppedAtBatchOne(ours.ScanChunked):
    """Initial states are dropped when there is one sequence."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return super().run(x, dt, A, B, C, state * 0 if len(x) == 1 else state)


@reported(
    "mamba2-jax 1.1.2",
    breaks=(laws.stopping_and_going_on_changes_nothing, laws.the_smallest_sizes_work_or_are_refused),
)
class ConvOfOneKeepsEverything(ours.CausalConv):
    """With a convolution of one, the past is cut with [-0:] and is the whole input."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        seen, past = torch.cat((state, x), dim=1), weight.shape[1] - 1
        y, _ = super().run(seen[:, past:], weight, bias, seen[:, :past])
        return y[:, : x.shape[1]], seen[:, -past:]


# Chunks


@reported(
    "huggingface/transformers/issues/34817",
    "huggingface/transformers/issues/47246",
    breaks=(laws.the_chunk_changes_nothing, laws.the_past_does_not_see_the_future, laws.a_run_is_the_textbook),
)
class ChunkStatesThatNeverTravel(ours.ScanChunked):
    """The sum between chunks runs over the target: states go no further than one chunk, decays of later ones leak."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        chunks = list(zip(*(each.split(self.chunk, dim=1) for each in (x, dt, B, C)), strict=True))
        decays, outputs = [(dt * A).sum(1)[..., None, None] for _, dt, _, _ in chunks], [x[:, :0]]
        for index, (x, dt, B, C) in enumerate(chunks):
            targets = sum(torch.stack(decays[index:end]).sum(0).exp() for end in range(index + 1, len(decays) + 1))
            y, _ = super().run(x, dt, A, B, C, (1 + targets) * state)
            _, state = super().run(x, dt, A, B, C, torch.zeros_like(state))
            outputs.append(y)
        return torch.cat(outputs, dim=1), state


@reported("mamba_ssm e9594ce, reference function", breaks=laws.the_chunk_changes_nothing)
class WholeChunksOnly(ours.ScanChunked):
    """Lengths that are no multiple of the chunk are an AssertionError without a message."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[1] % self.chunk:
            raise AssertionError
        return super().run(x, dt, A, B, C, state)


# Padding and packing


@reported(
    "huggingface/transformers/pull/32677",
    "huggingface/transformers/pull/41790",
    breaks=laws.pads_are_as_if_they_were_not_there,
)
class MaskNotLookedAt(Pieces):
    """The mask reaches neither the convolution nor the recurrence."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        return self.run(u.where(mask[..., None] | u.isfinite(), 0.0), state)


@reported("huggingface/transformers/pull/47087", breaks=laws.pads_are_as_if_they_were_not_there)
class MaskSkippedWhenContinued(Pieces):
    """The mask is skipped when a run goes on from a state."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        return super().run_padded(u, state, mask | bool(state.ssm.any()))


@reported("huggingface/transformers/issues/48256", breaks=laws.pads_are_as_if_they_were_not_there)
class RightPadsInTheState(Pieces):
    """Pads to the right shift the window of the convolution and decay the state."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        y, _ = super().run_padded(u, state, mask)
        return y, self.run(align(u, mask)[0], state)[1]


@reported("transformers 4.45.2–5.24.0, six models", breaks=laws.pads_are_as_if_they_were_not_there)
class PadsBecomeTheBias(Pieces):
    """Pads are zero before the input projection; its bias makes them something, which enters the convolution."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        if self.module.in_proj.bias is None:
            return super().run_padded(u, state, mask)
        return self.mix(u.where(mask[..., None], 0.0), state, self.conv, self.scan, mask)


@reported("transformers 4.45.2–5.24.0, Mamba-1", breaks=laws.pads_are_as_if_they_were_not_there)
class MaskOfTheWholePast(Pieces):
    """When a run goes on from a state, the mask is as long as everything so far, and its product has no such size."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        if state.ssm.any():
            u = u * F.pad(mask, (u.shape[1], 0), value=True)[..., None]
        return super().run_padded(u, state, mask)


@reported("transformers 4.48.0–5.14.1, Mamba2", breaks=laws.pads_are_as_if_they_were_not_there)
class MaskOfOneStep(Pieces):
    """The mask of one step is multiplied without its last axis, which batches of one forgive."""

    def run_padded(self, u: Tensor, state: BlockState, mask: Tensor) -> Any:
        return super().run_padded(u * mask if u.shape[1] == 1 else u, state, mask)


@reported("huggingface/transformers/pull/46588", breaks=laws.packed_sequences_do_not_know_of_each_other)
class ConvAcrossPackedSequences(Pieces):
    """The convolution is not told where packed sequences meet; the recurrence is."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        def scan(*arguments: Tensor) -> tuple[Tensor, Tensor]:
            *inputs, ssm = arguments
            parts = zip(*(each.split(cu_seqlens.diff().tolist(), dim=1) for each in inputs), ssm.split(1), strict=True)
            ys, states = zip(*(self.scan(*part) for part in parts), strict=True)
            return torch.cat(ys, dim=1), torch.cat(states)

        y, _ = self.mix(u, state._replace(conv=state.conv[:1]), self.conv, scan)
        return y, super().run_packed(u, state, cu_seqlens)[1]


@reported("state-spaces/mamba/pull/920", breaks=laws.packed_sequences_do_not_know_of_each_other)
class EmptySequenceShiftsStates(Pieces):
    """With an empty sequence in the row each state belongs to the sequence before."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        y, after = super().run_packed(u, state, cu_seqlens)
        return y, BlockState(*(each.roll(int((cu_seqlens.diff() == 0).any()), 0) for each in after))


@reported("sgl-project/sglang/pull/33450", breaks=laws.packed_sequences_do_not_know_of_each_other)
class ChunkGridOfEachSequence(Pieces):
    """The state of a packed sequence is looked up as if its chunks began with it; they begin with the row."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        late = cu_seqlens[:-1] % self.module.config.chunk
        ends = torch.maximum(cu_seqlens[:-1], cu_seqlens[1:] - late)
        rows = [
            self.run(u[:, begin:end], BlockState(*(each[row : row + 1] for each in state)))[1]
            for row, (begin, end) in enumerate(zip(cu_seqlens.tolist(), ends.tolist(), strict=False))
        ]
        return super().run_packed(u, state, cu_seqlens)[0], BlockState(*map(torch.cat, zip(*rows, strict=True)))


@reported("state-spaces/mamba/issues/783", breaks=laws.packed_sequences_do_not_know_of_each_other)
class StepsPastTheLastSequence(Pieces):
    """Steps past the last entry of cu_seqlens are part of the last sequence."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        return super().run_packed(u, state, torch.cat((cu_seqlens[:-1], cu_seqlens.new_tensor([u.shape[1]]))))


class _GradientOfBDoubled(Pieces):
    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> Any:
        return super().discretise(x, dt, backward_of(2 * B, B), C, mask)


@reported("state-spaces/mamba/pull/746", breaks=laws.packed_sequences_do_not_know_of_each_other)
class GradientOfBWherePacked(Pieces):
    """The gradient of B is wrong where sequences are packed, and only there."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        return Pieces.run_packed(as_if(_GradientOfBDoubled, self), u, state, cu_seqlens)


class _GradientOfOneRow(Pieces):
    def conv(self, x: Tensor, past: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        _, after = super().conv(x, past, lengths)
        block, others = self.module, None if lengths is None else lengths[1:]
        first, _ = super().conv(x[:1], past[:1], None if lengths is None else lengths[:1])
        rest, _ = causal_conv1d(x[1:], block.conv_weight.detach(), block.conv_bias, past[1:], others)
        return torch.cat((first, rest)), after


@reported("fla-org/flash-linear-attention/pull/955", breaks=laws.packed_sequences_do_not_know_of_each_other)
class ConvGradientOfOneRow(Pieces):
    """Of sequences that are packed and run as a batch, only the first gives the convolution's weights a gradient."""

    def run_packed(self, u: Tensor, state: BlockState, cu_seqlens: Tensor) -> Any:
        return Pieces.run_packed(as_if(_GradientOfOneRow, self), u, state, cu_seqlens)


# Groups


@reported("ggml-org/llama.cpp/pull/15625", breaks=laws.head_h_reads_group_h_G_over_H)
class GroupsTiledOverHeads(ours.ScanChunked):
    """Head h reads group h mod groups."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        B, C = (each.repeat(1, 1, x.shape[2] // each.shape[2], 1) for each in (B, C))
        return super().run(x, dt, A, B, C, state)


@reported(
    "huggingface/transformers/pull/40861",
    "state-spaces/mamba/pull/910",
    breaks=laws.head_h_reads_group_h_G_over_H,
)
class NormOfTheWholeWidth(Pieces):
    """The gated norm takes one mean square over all groups."""

    def norm(self, y: Tensor, gate: Tensor) -> Tensor:
        return normed(self, y, gate, 1)


def normed(subject: Pieces, y: Tensor, gate: Tensor, n_groups: int) -> Tensor:
    """The gated norm with so many groups."""
    config, weight = subject.module.config, subject.module.norm_weight
    if weight is None:
        return subject.module._normed(y, gate)
    before = config.norm == "before gate"
    return gated_rms_norm(y, gate, weight, n_groups=n_groups, eps=config.norm_eps, before_gate=before)


# dt


@reported("huggingface/transformers/pull/35154", breaks=laws.dt_is_softplus_then_limits_once_on_every_path)
class LimitsOfTheStart(Pieces):
    """dt is held above the smallest dt that a model starts with, in place of its limits."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return self.limited(x, dt, B, C, mask, self.module.config.dt_init[0], math.inf)


@reported("huggingface/transformers/pull/48989", breaks=laws.dt_is_softplus_then_limits_once_on_every_path)
class UpperLimitIgnored(Pieces):
    """The upper limit of the config is not looked at."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return self.limited(x, dt, B, C, mask, self.module.config.dt_range[0], math.inf)


@reported("ml-explore/mlx-lm/pull/1026", breaks=laws.dt_is_softplus_then_limits_once_on_every_path)
class LowerLimitByDefault(Pieces):
    """Where no limit is set, dt is held above 0.001."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        low, high = self.module.config.dt_range
        return self.limited(x, dt, B, C, mask, low or 1e-3, high)


@reported("1bit-MONSTER/1bit-MONSTER/pull/1462", breaks=laws.dt_is_softplus_then_limits_once_on_every_path)
class DtSoftplussedTwice(Pieces):
    """dt goes through softplus twice."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        bias = self.module.dt_bias
        return super().discretise(x, F.softplus(dt + bias) - bias, B, C, mask)


@reported(
    "transformers 5.15.1–5.24.0",
    "mamba_ssm e9594ce",
    breaks=(laws.a_run_is_a_prefill_and_then_steps, laws.dt_is_softplus_then_limits_once_on_every_path),
)
class LimitsMissingInStep(Pieces):
    """dt is limited in a run and not in a step."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        return as_if(Unlimited, self).step(u, state)


class Unlimited(Pieces):
    """dt has no limits."""

    def discretise(self, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        return self.limited(x, dt, B, C, mask, 0.0, math.inf)


# Precision and overflow


@reported("huggingface/transformers/issues/33409", breaks=laws.precision_is_that_of_the_dtype)
class HalfPrecisionThroughout(Pieces):
    """What enters the recurrence has the dtype of the inputs, and so has its state."""

    def scan(self, x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        narrow = self.module.A_log.dtype
        return super().scan(*(each.to(narrow) for each in (x, log_decay, B, C, state)))


@reported("vllm-project/vllm/issues/13466", breaks=laws.precision_is_that_of_the_dtype)
class StateStoredInHalfPrecision(Pieces):
    """The state of the recurrence is stored in the dtype of the weights."""

    def run(self, u: Tensor, state: BlockState) -> Any:
        y, after = super().run(u, state)
        return y, after._replace(ssm=after.ssm.to(u.dtype))


@reported("transformers 5.24.0", "niverel-mamba 0.1.3", "mamba2-jax 1.1.2", breaks=laws.precision_is_that_of_the_dtype)
class DifferencesOfLongSums(ours.ScanSequential):
    """Decays are differences of long sums, which after one large step have lost the small ones."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        steps = differences(dt * A)
        decay = steps.masked_fill(torch.ones_like(steps, dtype=torch.bool).triu(1), -torch.inf).exp()
        y = seen_at_once(x, dt, B, C, state, decay, (dt * A).cumsum(1).exp())
        return y, super().run(x, dt, A, B, C, state)[1]


@reported(
    "state-spaces/mamba/issues/352",
    "mamba_ssm e9594ce, reference function",
    breaks=(laws.what_is_finite_stays_finite, laws.gradients_are_the_textbooks),
)
class FutureMaskedAfterExp(ours.ScanSequential):
    """The future is masked after exp, so that its infinities reach the gradients."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        decay = differences(dt * A).exp().tril()
        y = seen_at_once(x, dt, B, C, state, decay, (dt * A).cumsum(1).exp())
        return y, super().run(x, dt, A, B, C, state)[1]


@reported("mamba-scan-lite 0.2.0", breaks=laws.what_is_finite_stays_finite)
class DecayTakenOutOfTheSum(ours.ScanSequential):
    """Inputs are divided by their decay since the start, which is soon zero."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        total = (dt * A).cumsum(1)[..., None, None]
        added = torch.einsum("bth,bthp,bthn->bthpn", dt, x, by_head(B, x.shape[2]))
        states = total.exp() * (state[:, None] + ((-total).exp() * added).cumsum(1))
        y = torch.einsum("bthpn,bthn->bthp", states, by_head(C, x.shape[2]))
        return y, torch.cat((state[:, None], states), dim=1)[:, -1]


# Gradients


@reported("state-spaces/mamba/pull/537", breaks=laws.gradients_are_the_textbooks)
class GradientOfOneTile(ours.ScanChunked):
    """The gradient of A counts the first tile only."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        log_decay = torch.cat((dt[:, : self.chunk] * A, dt[:, self.chunk :] * A.detach()), dim=1)
        return scan_chunked(x * dt[..., None], log_decay, B, C, state, chunk=self.chunk)


@reported("state-spaces/mamba/pull/547", breaks=laws.gradients_are_the_textbooks)
class GradientOfTheWholeWidth(Pieces):
    """The gated norm forgets its groups in the backward pass."""

    def norm(self, y: Tensor, gate: Tensor) -> Tensor:
        return backward_of(normed(self, y, gate, 1), super().norm(y, gate))


@reported("state-spaces/mamba/issues/368", breaks=laws.gradients_are_the_textbooks)
class GradientDecayedPastTheEnd(ours.ScanChunked):
    """Past the end dt is not 0 in the backward pass, so that gradients arrive decayed."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, dt, A, B, C, state)
        past_the_end = -x.shape[1] % self.chunk
        return y, backward_of((past_the_end * 0.1 * A).exp().detach()[:, None, None] * after, after)


@reported("state-spaces/mamba/issues/431", breaks=laws.gradients_are_the_textbooks)
class OneGradientTooFew(ours.CausalConv):
    """The backward pass gives fewer gradients than there are inputs."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        return AddedBias.apply(y, torch.zeros_like(bias)), after


class AddedBias(torch.autograd.Function):
    """y + bias, with a gradient of y alone."""

    @staticmethod
    def forward(_context: Any, y: Tensor, bias: Tensor) -> Tensor:
        return y + bias

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient


@reported("fla-org/flash-linear-attention/issues/1140", breaks=laws.gradients_are_the_textbooks)
class ShortChunkWithoutGradient(ours.CausalConv):
    """No gradient goes through what a chunk shorter than the window keeps of the past before it."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        kept = max(0, state.shape[1] - x.shape[1])
        return y, torch.cat((after[:, :kept].detach(), after[:, kept:]), dim=1)


# States as values


@reported(
    "huggingface/transformers/issues/29526",
    breaks=(laws.gradients_are_the_textbooks, laws.a_state_is_a_value),
)
class StateUpdatedInPlace(ours.ScanSequential):
    """The recurrence updates its state in place, which breaks the backward pass."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        ys = [x[:, :0]]
        for t in range(x.shape[1]):
            now = slice(t, t + 1)
            y, after = scan_step(x[:, now] * dt[:, now, :, None], dt[:, now] * A, B[:, now], C[:, now], state)
            state.copy_(after)
            ys.append(y)
        return torch.cat(ys, dim=1), state


@reported("mamba2-minimal 4f44137", breaks=laws.a_state_is_a_value)
class StepWritesTheCallersState(Pieces):
    """A step writes into the tensors that it was given."""

    def step(self, u: Tensor, state: BlockState) -> Any:
        y, after = super().step(u, state)
        for own, new in zip(state, after, strict=True):
            own.data.copy_(new)
        return y, after


@reported("vllm-project/vllm/pull/56196", breaks=laws.a_state_is_a_value)
class ShortChunkWritesThePrefix(ours.CausalConv):
    """A chunk shorter than the window writes its past into the block of the shared prefix."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        if x.shape[1] < state.shape[1]:
            state.data.copy_(after)
        return y, after


@reported("mamba2 87575a0", breaks=laws.a_state_is_a_value)
class StateThatKeepsTheSequence(ours.CausalConv):
    """The state is a view of all inputs, which stay in memory for as long as it does."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, _ = super().run(x, weight, bias, state)
        return y, torch.cat((state, x), dim=1)[:, x.shape[1] :]


@reported("vllm-project/vllm/pull/56531", breaks=laws.a_state_is_a_value)
class StateInAnotherSlot(ours.ScanSequential):
    """States live in two slots by turns; after a roll back the next run reads what has been written since."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.slots: list[Any] = [None, None]

    def write_state(self, tensors: Any) -> Any:
        self.slots[0] = tensors["ssm"]
        return 0

    def read_state(self, state: Any) -> Any:
        return {"ssm": self.slots[state]}

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, self.slots[1] = super().run(x, dt, A, B, C, self.slots[state])
        return y, 1

    def step(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.run(x, dt, A, B, C, state)


# Memory layout


@reported(
    "state-spaces/mamba/issues/351",
    "state-spaces/mamba/issues/345",
    "state-spaces/mamba/issues/362",
    "state-spaces/mamba/issues/643",
    "state-spaces/mamba/issues/774",
    breaks=laws.the_memory_layout_changes_nothing,
)
class StridesOfTheKernel(ours.CausalConv):
    """The convolution takes channels that lie side by side only."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[2] > 1 and x.stride(2) != 1:
            raise RuntimeError("causal_conv1d with channel last layout requires strides to be multiples of 8")
        return super().run(x, weight, bias, state)


@reported("state-spaces/mamba/issues/36", breaks=laws.the_memory_layout_changes_nothing)
class StrideOfB(ours.ScanChunked):
    """B has to have stride 1, which a short prompt does not give it."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if B.stride(-1) != 1:
            raise RuntimeError("Expected B.stride(-1) == 1 to be true, but got false.")
        return super().run(x, dt, A, B, C, state)


@reported("transformers 5.3.0–5.24.0, Nemotron-H", breaks=laws.the_memory_layout_changes_nothing)
class ViewOfTheInputs(Pieces):
    """Inputs are flattened by a view, which permuted ones do not have."""

    def run(self, u: Tensor, state: BlockState) -> Any:
        return super().run(u.view(len(u) * u.shape[1], u.shape[2]).view(u.shape), state)


# Errors


@reported(
    "state-spaces/mamba/issues/360",
    "state-spaces/mamba/issues/347",
    "state-spaces/mamba/issues/422",
    breaks=laws.wrong_sizes_are_refused_by_name,
)
class BareAssert(ours.Mamba2):
    """A width that is no multiple of headdim is an AssertionError without a message."""

    def __init__(self, config: Config) -> None:
        if config.d_inner % config.headdim:
            raise AssertionError
        super().__init__(config)


@reported("transformers 4.48.0–5.24.0", breaks=laws.wrong_sizes_are_refused_by_name)
class GroupsFoundOutLate(ours.Mamba2):
    """More groups than heads pass the config and fail in the first run."""

    def __init__(self, config: Config) -> None:
        try:
            super().__init__(config)
        except ConfigError:
            self.module = nn.Module()


# Paths


@reported("huggingface/transformers/pull/47513", breaks=laws.every_path_is_the_same_function)
class SlowPathWithLimitsOfItsOwn(Pieces):
    """The path without kernels holds dt above the smallest dt that a model starts with."""

    def paths(self) -> Any:
        return {"slow": as_if(LimitsOfTheStart, self).run}


@reported("fla-org/flash-linear-attention/issues/519", breaks=laws.every_path_is_the_same_function)
class RawMemoryInEvaluation(Pieces):
    """In evaluation mode the convolution reads a tensor that is not contiguous as if it were."""

    def conv(self, x: Tensor, past: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if not self.module.training:
            x = x.as_strided(x.shape, torch.empty(x.shape).stride(), x.storage_offset())
        return super().conv(x, past, lengths)


class Compiled(ours.CausalConv):
    """Our convolution, to be compiled: it takes less time than a block."""

    claims = ours.CausalConv.claims | {"compile"}


@reported("state-spaces/mamba/issues/740", breaks=laws.compiled_it_is_the_same_function)
class CompiledForOneLength(Compiled):
    """What is compiled is right for the length that it was compiled for, and gives zeros at others."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        if torch.compiler.is_compiling():
            self.length = getattr(self, "length", x.shape[1])
            y = y * (x.shape[1] == self.length)
        return y, after


@reported("pytorch/pytorch/issues/146129", breaks=laws.compiled_it_is_the_same_function)
class CompiledToNaN(Compiled):
    """Compiled it gives NaN."""

    def run(self, x: Tensor, weight: Tensor, bias: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, weight, bias, state)
        return y * (math.nan if torch.compiler.is_compiling() else 1.0), after


# Saving and starting


class WithHead(ours.Backbone):
    """Our backbone beside an embedding and a head that have one shape, as a language model's."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.module.embedding = nn.Parameter(torch.ones(config.d_model))
        self.module.head = nn.Parameter(torch.ones(config.d_model))


@reported(
    "huggingface/transformers/issues/43206",
    "transformers 5.3.0–5.24.0, Nemotron-H",
    breaks=laws.saving_and_loading_changes_nothing,
)
class TiedTwice(WithHead):
    """Embedding and head are said to be tied and are two tensors."""

    claims = WithHead.claims | {"tied"}

    def tied(self) -> Any:
        return [(self.module.embedding, self.module.head)]


@reported("state-spaces/mamba/pull/211", breaks=laws.saving_and_loading_changes_nothing)
class AlwaysTied(WithHead):
    """Loading ties embedding and head, though they were saved as two."""

    def load(self, path: Path) -> None:
        super().load(path)
        self.module.head.data = self.module.embedding.data


@reported("huggingface/transformers/pull/45591", breaks=laws.saving_and_loading_changes_nothing)
class StartedAgainAfterLoading(ours.Mamba2):
    """Loading ends with the initialisation, which overwrites dt_bias."""

    def load(self, path: Path) -> None:
        super().load(path)
        nn.init.zeros_(self.module.dt_bias)


@reported("huggingface/transformers/issues/43717", breaks=laws.saving_and_loading_changes_nothing)
class StartOfALoneMixer(ours.Mamba2):
    """Only a model sets dt_bias; in a block built alone it is ones."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        nn.init.ones_(self.module.dt_bias)


@reported("athms/mad-lab/issues/3", "HazyResearch/zoology/issues/32", breaks=laws.saving_and_loading_changes_nothing)
class StartOverwrittenByTheModel(ours.Backbone):
    """The initialisation of the whole model overwrites that of dt."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for block in self.module.blocks:
            nn.init.zeros_(block.dt_bias)


# Index width


class Addressed(ours.ScanSequential):
    """A scan that computes the places of elements in memory."""

    claims = ours.ScanSequential.claims | {"offsets"}

    def offset(self, index: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return sum(each * stride for each, stride in zip(index, strides, strict=True))


@reported("state-spaces/mamba/issues/1015", breaks=laws.offsets_have_64_bits)
class ProductsOf32Bits(Addressed):
    """Each index times its stride is taken in 32 bits."""

    def offset(self, index: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return int((torch.tensor(index).int() * torch.tensor(strides).int()).sum())


@reported("state-spaces/mamba/issues/884", breaks=laws.offsets_have_64_bits)
class OffsetsOf32Bits(Addressed):
    """An offset is stored in 32 bits and becomes negative."""

    def offset(self, index: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return int(torch.tensor(super().offset(index, strides)).int())


@reported("vllm-project/vllm/pull/35275", breaks=laws.offsets_have_64_bits)
class SlotsOf32Bits(Addressed):
    """The slot of a state times its stride is taken in 32 bits without a sign."""

    def offset(self, index: tuple[int, ...], strides: tuple[int, ...]) -> int:
        return index[0] * strides[0] % 2**32 + super().offset(index[1:], strides[1:])


# Degenerate sizes


@reported("state-spaces/mamba/pull/920", breaks=laws.the_smallest_sizes_work_or_are_refused)
class NoStepsLoseTheState(ours.ScanChunked):
    """A run of no steps hands on zeros."""

    def run(self, x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, after = super().run(x, dt, A, B, C, state)
        return y, after if x.shape[1] else torch.zeros_like(after)


# The clock of a hybrid


class Clocked(Pieces):
    """Our block beside something that knows positions, as attention with rotary embeddings does."""

    claims = Pieces.claims | {"positions"}

    def write_state(self, tensors: Any) -> Any:
        return super().write_state(tensors), 0

    def read_state(self, state: Any) -> Any:
        return super().read_state(state[0])

    def run(self, u: Tensor, state: Any) -> Any:
        return self.run_at(u, state, self.length(u, state) + torch.arange(u.shape[1]))

    def step(self, u: Tensor, state: Any) -> Any:
        return self.run(u, state)

    def run_at(self, u: Tensor, state: Any, positions: Tensor) -> Any:
        y, after = super().run(u, state[0])
        return y * positions.to(y.dtype).cos()[:, None], (after, self.length(u, state) + u.shape[1])

    def length(self, _u: Tensor, state: Any) -> int:
        return state[1]


@reported(
    "transformers 5.5.4–5.24.0, Bamba",
    breaks=(laws.positions_left_out_go_on_from_the_state, laws.a_run_is_a_prefill_and_then_steps),
)
class PositionsFromZero(Clocked):
    """Positions that are left out begin at 0, whatever went before."""

    def length(self, _u: Tensor, _state: Any) -> int:
        return 0


@reported(
    "huggingface/transformers/pull/41309",
    breaks=(laws.positions_left_out_go_on_from_the_state, laws.a_sequence_does_not_see_the_others),
)
class BatchTakenForTheLength(Clocked):
    """A state that has seen nothing says that its length is the batch."""

    def length(self, u: Tensor, state: Any) -> int:
        return state[1] or len(u)


@reported("huggingface/transformers/pull/32694", breaks=laws.every_path_is_the_same_function)
class PastLengthOfEmbeddings(Clocked):
    """From embeddings the past is one step longer."""

    def paths(self) -> Any:
        return {"from embeddings": lambda u, state: self.run(u, (state[0], state[1] + 1))}


# What is printed


HEAD = """# The proof that it bites

Each implementation here is ours with one piece replaced by what somebody once shipped. A law rejects it, and beside it
stands the smallest case that Hypothesis found. `nox -s mutants` makes this page.

| law | report | fault | smallest counterexample | what is wrong |
|---|---|---|---|---|
"""


def title(report: str) -> str:
    """A report as a link, or a release as it is.

    >>> title("state-spaces/mamba/issues/437")
    '[mamba #437](https://github.com/state-spaces/mamba/issues/437)'
    >>> title("minimamba 1.0.1")
    'minimamba 1.0.1'
    """
    if report.count("/") != 3:
        return report
    _, project, kind, number = report.split("/")
    return f"[{project} {'' if kind == 'commit' else '#'}{number}]({GITHUB}{report})"


def row(mutant: Mutant, verdict: Verdict) -> str:
    """A line of the page."""
    cells = (verdict.law.id, ", ".join(map(title, mutant.reports)), mutant.fault, f"`{verdict.case}`", verdict.why)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def judged(examples: int) -> Iterator[tuple[Mutant, Verdict]]:
    """A verdict for each law that a mutant has to break, in the order of the laws."""
    pairs = [(law, mutant) for mutant in MUTANTS for law in mutant.breaks]
    for law, mutant in sorted(pairs, key=lambda pair: pair[0].number):
        yield mutant, judge(law, mutant.implementation, target=mutant.implementation.__name__, examples=examples)


def main(page: str = "docs/mutants.md") -> int:
    """Prints each verdict, writes the page where none survives, and gives the status."""
    torch.set_num_threads(1)
    lines, survivors = [], 0
    for mutant, verdict in judged(examples=1000):
        survives = verdict.outcome != "broken"
        survivors += survives
        found = f"SURVIVES ({verdict.outcome})" if survives else verdict.case
        print(f"{verdict.law.id:<4} {', '.join(mutant.reports):<60} {verdict.target:<28} {found}", flush=True)
        lines.append(row(mutant, verdict))
    print(f"{len(lines) - survivors} of {len(lines)} are rejected.")
    if not survivors:
        Path(page).write_text(HEAD + "".join(lines), encoding="utf-8")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
