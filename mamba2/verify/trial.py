"""One implementation at one case: built, filled with numbers, and ready to run beside the textbook."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mamba2.verify import reference
from mamba2.verify.case import Case, Config
from mamba2.verify.implementation import Implementation
from mamba2.verify.reference import State
from mamba2.verify.strategies import Source

Inputs = tuple[Tensor, ...]

WITHOUT_TIME = {"A", "weight", "bias"}
"""Inputs that have neither a batch nor a time axis."""


class Run(NamedTuple):
    """What a run gave: outputs, the state as the implementation has it, and as the textbook names it."""

    outputs: Tensor
    state: Any
    tensors: State


class Trial:
    """An implementation built at a case, with inputs and a state to start from.

    The state is random where any can be given, else the initial one; parameters are far from their start, where ones
    and zeros would hide mistakes.
    """

    def __init__(self, implementation: type[Implementation], case: Case) -> None:
        self.implementation = implementation
        self.case = case
        self.config = case.config
        self.subject: Any = build(implementation, self.config, case)
        source = Source(case.seed)
        features = self.config.d_model if implementation.features is None else implementation.features
        self.inputs = _inputs(implementation.level, case, features, source)
        self.before = self._first_state(source)

    def claims(self, *names: str) -> bool:
        """Whether the implementation claims them all."""
        return self.implementation.claims.issuperset(names)

    @property
    def can_step(self) -> bool:
        """Whether there is a step to take."""
        return self.claims("step") and self.case.time > 0

    def tracked(self, inputs: Inputs | None = None) -> Inputs:
        """The inputs with a gradient to ask for, where that is claimed."""
        inputs = self.inputs if inputs is None else inputs
        return self.select(inputs, lambda each: each.detach().clone().requires_grad_(self.claims("gradients")))

    def start(self, before: State | None = None, batch: int | None = None) -> Any:
        """A state to start from, as the implementation has it: the one of this trial when not given."""
        before = self.before if before is None else before
        if self.claims("initial state"):
            return self.subject.write_state({name: each.clone() for name, each in before.items()})
        return self.subject.initial_state(self.case.batch if batch is None else batch)

    def run(self, inputs: Inputs | None = None, state: Any = None) -> Run:
        """One run; from the start of this trial and on its inputs when not given."""
        inputs = self.inputs if inputs is None else inputs
        state = self.start() if state is None else state
        return self.as_run(*self.subject.run(*inputs, state))

    def steps(self, inputs: Inputs, state: Any) -> Run:
        """The same step by step."""
        time = inputs[0].shape[1]
        outputs = []
        for t in range(time):
            y, state = self.subject.step(*self.window(inputs, t, t + 1), state)
            outputs.append(y)
        return self.as_run(torch.cat(outputs, dim=1), state)

    def in_parts(self, parts: Iterable[tuple[int, int]]) -> Run:
        """The same with stops in between."""
        outputs, state = [], self.start()
        for begin, end in parts:
            y, state = self.subject.run(*self.window(self.inputs, begin, end), state)
            outputs.append(y)
        return self.as_run(torch.cat(outputs, dim=1), state)

    def as_run(self, outputs: Tensor, state: Any) -> Run:
        """The state after it is read where the implementation gives one."""
        return Run(outputs, state, self.read(state) if self.claims("state") else {})

    def read(self, state: Any) -> State:
        """A state under the textbook's names."""
        return dict(self.subject.read_state(state))

    def textbook(self, inputs: Inputs | None = None, before: State | None = None, *, dtype: torch.dtype) -> Run:
        """What it has to give, from the numbers as the implementation has them, in this dtype."""
        inputs = self.inputs if inputs is None else inputs
        before = self.before if before is None else before
        inputs = tuple(each.to(dtype) for each in inputs)
        before = {name: each.to(dtype) for name, each in before.items()}
        weights = {name: each.to(dtype) for name, each in self.subject.weights().items()}
        match self.implementation.level:
            case "scan":
                x, dt, A, B, C = inputs
                outputs, after = reference.scan(x, dt, A, B, C, before["ssm"])
                return Run(outputs, None, {"ssm": after})
            case "conv":
                x, weight, bias = inputs
                outputs, after = reference.conv(x, weight, bias, before["conv"])
                return Run(outputs, None, {"conv": after})
            case "block":
                outputs, tensors = reference.block(self.config, weights, inputs[0], before)
                return Run(outputs, None, tensors)
            case _:
                outputs, tensors = reference.model(self.config, weights, inputs[0], before)
                return Run(self.subject.readout(outputs), None, tensors)

    def window(self, inputs: Inputs, begin: int, end: int) -> Inputs:
        """The time steps from `begin` up to `end`."""
        return self.select(inputs, lambda each: each[:, begin:end])

    def rows(self, inputs: Inputs, index: Tensor) -> Inputs:
        """The chosen sequences."""
        return self.select(inputs, lambda each: each[index])

    def select(self, inputs: Inputs, choose: Any) -> Inputs:
        """Applies a function to the inputs that have a batch and a time axis."""
        names = self.implementation.inputs
        return tuple(each if name in WITHOUT_TIME else choose(each) for name, each in zip(names, inputs, strict=True))

    def _first_state(self, source: Source) -> State:
        dtype = self.case.torch_dtype
        shapes = reference.state_shapes(self.implementation.level, self.config, self.case.batch)
        free = self.claims("initial state")
        return {
            # A state of a recurrence is float32 or wider whatever the activations are.
            name: (source.normal(*shape) if free else torch.zeros(shape)).to(
                torch.promote_types(dtype, torch.float32) if name.endswith("ssm") else dtype
            )
            for name, shape in shapes.items()
        }


def build(implementation: type[Implementation], config: Config, case: Case) -> Implementation:
    """An implementation of this config with the parameters of this case."""
    subject = implementation(config)
    subject.to(case.torch_dtype)
    randomise(subject.parameters(), case)
    return subject


@torch.no_grad()
def randomise(parameters: dict[str, nn.Parameter], case: Case) -> None:
    """Fills parameters by the ends of their names; all but A_log and dt_bias are normal and keep values of order 1."""
    source = Source(case.seed + 1)
    # With small steps softplus is below every limit that an implementation may have made up.
    low, high = (-10.0, -8.0) if case.values == "small steps" else (-7.0, 2.0)
    largest = 1e3 if case.values == "huge steps" else 16.0
    for name, parameter in parameters.items():
        if name.endswith("A_log"):
            values = source.uniform(math.log(0.1), math.log(largest), *parameter.shape)
        elif name.endswith("dt_bias"):
            values = source.uniform(low, high, *parameter.shape)
        else:
            values = source.normal(*parameter.shape) / parameter.shape[-1] ** 0.5
        parameter.copy_(values)


def _inputs(level: str, case: Case, features: int, source: Source) -> Inputs:
    each_step, config, dtype = (case.batch, case.time), case.config, case.torch_dtype
    if level == "scan":
        dt, A = _steps_and_decays(case, source)
        made: Inputs = (
            source.normal(*each_step, case.head, case.channel),
            dt,
            A,
            source.normal(*each_step, case.group, case.state),
            source.normal(*each_step, case.group, case.state),
        )
    elif level == "conv":
        channels = config.d_xBC
        made = (source.normal(*each_step, channels), source.normal(channels, case.width), source.normal(channels))
    else:
        u = source.normal(*each_step, features)
        if case.values == "huge steps" and case.time:
            u[:, case.seed % case.time] *= 1e3
        made = (u,)
    return tuple(each.to(dtype) for each in made)


def _steps_and_decays(case: Case, source: Source) -> tuple[Tensor, Tensor]:
    """dt log-uniform in 1e-3 … 1 and A in 0.1 … 16; with huge steps one dt of 1e2 … 1e6 among those of 1e-2."""
    shape = (case.batch, case.time, case.head)
    if case.values != "huge steps":
        return source.uniform(math.log(1e-3), 0.0, *shape).exp(), -source.uniform(0.1, 16.0, case.head)
    dt = torch.full(shape, 1e-2, dtype=torch.float64)
    if case.time:
        dt[:, case.seed % case.time] = (1e2, 1e4, 1e6)[case.seed % 3]
    return dt, -(1e-3, 1.0, 16.0, 1e3)[case.seed % 4] * torch.ones(case.head, dtype=torch.float64)
