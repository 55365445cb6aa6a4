"""What an adopter writes: one class that builds an implementation, runs it, and says what it can do.

Subclass `Scan`, `Conv`, `Block` or `Model`, list the `claims`, and define `run` and what each claim needs:

    class Mine(Block):
        claims = frozenset({"state", "resume", "step", "groups"})

        def __init__(self, config):           # verify.case.Config
            self.module = mine.Mamba2(d_model=config.d_model, …)

        def weights(self): …                  # under the names of verify.reference
        def initial_state(self, batch): …
        def run(self, u, state): …            # -> outputs, state
        def step(self, u, state): …
        def read_state(self, state): …        # -> {"conv": …, "ssm": …} in the shapes of verify.reference
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mamba2.errors import ConfigError
from mamba2.verify.case import Config
from mamba2.verify.reference import Weights


class Claim(NamedTuple):
    """Something that an implementation may be able to do."""

    meaning: str
    method: str | None = None
    """What it has to define for that."""


CLAIMS = {
    "float64": Claim("runs in float64"),
    "bfloat16": Claim("runs in bfloat16"),
    "float16": Claim("runs in float16"),
    "state": Claim("gives the state after the last step", "read_state"),
    "resume": Claim("goes on from a state that it gave"),
    "initial state": Claim("goes on from any state", "write_state"),
    "step": Claim("has a single step", "step"),
    "padding": Claim("takes pads anywhere in a row", "run_padded"),
    "packing": Claim("takes many sequences in one row", "run_packed"),
    "empty": Claim("runs no sequences and no steps at all"),
    "groups": Claim("groups of heads share B and C"),
    "dt_range": Claim("limits dt"),
    "bias": Claim("may have biases on its projections"),
    "conv_bias": Claim("may have a bias on its convolution"),
    "no conv_bias": Claim("may have none"),
    "D per channel": Claim("may have a skip for every channel"),
    "no D": Claim("may have no skip"),
    "norm before gate": Claim("may norm first and gate then"),
    "no norm": Claim("may have no norm"),
    "gradients": Claim("is differentiable by inputs and parameters"),
    "state gradients": Claim("is differentiable by the state it is given and in the one it gives"),
    "errors": Claim("refuses wrong sizes by name"),
    "compile": Claim("runs under torch.compile"),
    "save": Claim("saves and loads its parameters", "save"),
    "init": Claim("starts dt and A within dt_init and A_init"),
    "tied": Claim("shares tensors", "tied"),
    "offsets": Claim("computes the places of elements in memory itself", "offset"),
    "positions": Claim("knows the positions of its inputs", "run_at"),
}
"""The whole vocabulary; what an implementation does not claim is not asked of it."""


class Implementation:
    """One implementation, built with one config; the four levels below say how it is run."""

    level: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]]
    """What `run` takes in front of the state."""
    claims: ClassVar[frozenset[str]]
    features: ClassVar[int | None] = None
    """Width of `u`; d_model where it is None."""
    module: nn.Module
    """Where there is one, it holds the parameters."""

    def __init__(self, config: Config) -> None:
        raise NotImplementedError

    def parameters(self) -> dict[str, nn.Parameter]:
        """What training changes, by name; names end with `A_log` and `dt_bias` where it is them."""
        return dict(self.module.named_parameters()) if hasattr(self, "module") else {}

    def to(self, dtype: torch.dtype) -> None:
        """Brings the parameters into a dtype."""
        if hasattr(self, "module"):
            self.module.to(dtype)

    def weights(self) -> Weights:
        """The parameters under the names of `verify.reference`: themselves, or views and parts of them."""
        return {}

    def paths(self) -> Mapping[str, Callable[..., Any]]:
        """Other ways than `run` to the same results, by name: fused, unfused, from embeddings."""
        return {}

    def readout(self, raw: Tensor) -> Tensor:
        """The outputs from what a model's head gives."""
        return raw

    def save(self, path: Path) -> None:
        """Writes the parameters; `load` reads them into another one of the same config."""
        torch.save(self.module.state_dict(), path)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote."""
        self.module.load_state_dict(torch.load(path, weights_only=True))


class Scan(Implementation):
    """`run(x, dt, A, B, C, state)`: dt is final and positive, A negative, state (batch, head, channel, state)."""

    level = "scan"
    inputs = ("x", "dt", "A", "B", "C")


class Conv(Implementation):
    """`run(x, weight, bias, state)`: depthwise, weight (conv, width), bias (conv), state (batch, width-1, conv)."""

    level = "conv"
    inputs = ("x", "weight", "bias")


class Block(Implementation):
    """`run(u, state)`: u (batch, time, d_model), as the outputs."""

    level = "block"
    inputs = ("u",)


class Model(Implementation):
    """`run(u, state)`: u (batch, time, feature), outputs one tensor (batch, time, …)."""

    level = "model"
    inputs = ("u",)


def check_implementation(implementation: type[Implementation]) -> None:
    """Refuses a class that claims what it lacks, in one line that says what to write.

    Raises:
        ConfigError: a claim is unknown, its method is missing, or a method has another signature.
    """
    name = implementation.__name__
    if not isinstance(getattr(implementation, "claims", None), frozenset):
        raise ConfigError(f"{name}: must say what it can do. Write claims = frozenset({{…}}) with some of: {_known()}.")
    for claim in sorted(implementation.claims):
        if claim not in CLAIMS:
            raise ConfigError(f"{name}: claims must be known; got {claim!r}. Choose from: {_known()}.")
        method = CLAIMS[claim].method
        if method is not None and not hasattr(implementation, method):
            raise ConfigError(
                f"{name}: claims {claim!r}, so it must have {method}. Write {_definition(implementation, method)}."
            )
    if implementation.level in ("block", "model") and implementation.weights is Implementation.weights:
        raise ConfigError(
            f"{name}: must show its weights, so that it can be judged by the textbook. Write def weights(self), which "
            f"gives them by the names in mamba2.verify.reference."
        )
    if "initial state" not in implementation.claims and not hasattr(implementation, "initial_state"):
        raise ConfigError(
            f"{name}: must have a state to start from, if only None. Write def initial_state(self, batch), or claim "
            f"'initial state'."
        )
    for method in ("run", *(claim.method for claim in CLAIMS.values() if claim.method)):
        _check_signature(implementation, method)


def _known() -> str:
    return ", ".join(CLAIMS)


def _definition(implementation: type[Implementation], method: str) -> str:
    return f"def {method}({', '.join(('self', *_arguments(implementation, method)))})"


def _arguments(implementation: type[Implementation], method: str) -> tuple[str, ...]:
    return {
        "run": (*implementation.inputs, "state"),
        "step": (*implementation.inputs, "state"),
        "run_padded": (*implementation.inputs, "state", "mask"),
        "run_packed": (*implementation.inputs, "state", "cu_seqlens"),
        "run_at": (*implementation.inputs, "state", "positions"),
        "read_state": ("state",),
        "write_state": ("tensors",),
        "save": ("path",),
        "tied": (),
        "offset": ("index", "strides"),
    }[method]


def _check_signature(implementation: type[Implementation], method: str) -> None:
    wanted = _arguments(implementation, method)
    written = f"Write {_definition(implementation, method)}."
    if not hasattr(implementation, method):
        if method == "run":
            raise ConfigError(f"{implementation.__name__}: must have run. {written}")
        return
    signature = inspect.signature(getattr(implementation, method))
    try:
        signature.bind(None, *wanted)
    except TypeError:
        raise ConfigError(
            f"{implementation.__name__}.{method}: must take ({', '.join(wanted)}); takes {signature}. {written}"
        ) from None
