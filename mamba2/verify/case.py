"""One case of a law as a few integers and words, from which every tensor is made again."""

import math
from dataclasses import dataclass, fields
from itertools import pairwise

import torch


@dataclass(frozen=True, kw_only=True)
class Config:
    """What an implementation is built with; names as in the Mamba-2 paper (arXiv 2405.21060).

    Nothing is checked here: to refuse sizes that cannot work together is the implementation's own law.
    """

    d_model: int
    d_state: int
    expand: int
    headdim: int
    n_groups: int
    d_conv: int
    chunk: int
    layers: int
    dt_range: tuple[float, float]
    """Limits of dt, applied after softplus on every path."""
    bias: bool
    """Biases on the input and output projections."""
    conv_bias: bool
    D: str
    """The skip: one value per 'head', one per 'channel', or 'none'."""
    norm: str
    """The gated norm: 'after gate' norm(y·silu(z)), 'before gate' norm(y)·silu(z), or 'none' y·silu(z)."""
    norm_eps: float = 1e-5
    dt_init: tuple[float, float] = (1e-3, 1e-1)
    """softplus(dt_bias) starts within."""
    A_init: tuple[float, float] = (1.0, 16.0)
    """-A starts within."""

    @property
    def d_inner(self) -> int:
        """expand·d_model."""
        return self.expand * self.d_model

    @property
    def n_heads(self) -> int:
        """d_inner / headdim."""
        return self.d_inner // self.headdim

    @property
    def d_xBC(self) -> int:
        """Channels of the convolution: x, B and C side by side."""
        return self.d_inner + 2 * self.n_groups * self.d_state


_WORDS = {
    "group": "{} groups",
    "head": "{} heads",
    "channel": "{} channels a head",
    "state": "{} states a channel",
    "width": "a convolution over {} steps",
    "chunk": "chunks of {} steps",
    "expand": "{} times as wide inside",
    "layers": "{} layers",
    "cuts": "cut after {} steps",
    "dt_range": "dt within {}",
    "bias": "biases on the projections",
    "conv_bias": "a bias on the convolution",
    "D": "D: {}",
    "norm": "norm: {}",
    "dtype": "in {}",
    "values": "{}",
    "pad": "{} at the pads",
    "seed": "random numbers of seed {}",
}
"""What is said of a field that is not the smallest; a case's first words are its sequences and steps."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Case:
    """Sizes, options and a seed; every default is the smallest, and the rest is what matters in a counterexample.

    >>> case = Case(time=2, chunk=3, seed=1)
    >>> print(case)
    batch=1 time=2 chunk=3 seed=1
    >>> case
    Case(time=2, chunk=3, seed=1)
    """

    batch: int = 1
    time: int = 1
    group: int = 1
    head: int = 1
    """A multiple of `group`."""
    channel: int = 1
    state: int = 1
    width: int = 1
    chunk: int = 1
    expand: int = 1
    """A divisor of head·channel."""
    layers: int = 1
    cuts: tuple[int, ...] = ()
    """Places in time, rising, 0 … time: where to stop and go on, or where packed sequences meet."""
    dt_range: tuple[float, float] = (0.0, math.inf)
    bias: bool = False
    conv_bias: bool = False
    D: str = "head"
    norm: str = "after gate"
    dtype: str = "float64"
    values: str = "ordinary"
    """'ordinary', 'huge steps' (one dt of 1e2 … 1e6 among those of 1e-2, A up to 1e3) or 'small steps'."""
    pad: float = 0.0
    """What stands at the pads."""
    seed: int = 0

    @property
    def config(self) -> Config:
        """What an implementation of this case is built with."""
        return Config(
            d_model=self.head * self.channel // self.expand,
            d_state=self.state,
            expand=self.expand,
            headdim=self.channel,
            n_groups=self.group,
            d_conv=self.width,
            chunk=self.chunk,
            layers=self.layers,
            dt_range=self.dt_range,
            bias=self.bias,
            conv_bias=self.conv_bias,
            D=self.D,
            norm=self.norm,
        )

    @property
    def torch_dtype(self) -> torch.dtype:
        """`dtype` as torch has it."""
        found = getattr(torch, self.dtype)
        if not isinstance(found, torch.dtype):
            raise TypeError(f"Case: dtype must be the name of a torch dtype; got {self.dtype!r}.")
        return found

    @property
    def cut(self) -> int:
        """A place to stop and go on from: the first of the cuts, else the middle."""
        return self.cuts[0] if self.cuts else self.time // 2

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """Start and end of the pieces between the cuts."""
        edges = (0, *self.cuts, self.time)
        return tuple(pairwise(edges))

    @property
    def sizes(self) -> dict[str, int | str]:
        """The fields that say how large something is and which option is taken."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int | str)}

    @property
    def in_words(self) -> str:
        """What a person reads of a counterexample.

        >>> Case(time=2, group=2, head=4).in_words
        '1 sequence of 2 steps, 2 groups, 4 heads; all else is 1 or left out'
        """
        of = f"{self.batch} sequence{'s' * (self.batch != 1)} of {self.time} step{'s' * (self.time != 1)}"
        unusual = {name: value for name, value in self._unusual().items() if name in _WORDS}
        words = [_WORDS[name].format(_word(value).strip("'")) for name, value in unusual.items()]
        return f"{', '.join([of, *words])}; all else is 1 or left out"

    def __str__(self) -> str:
        words = {"batch": self.batch, "time": self.time, **self._unusual()}
        return " ".join(f"{name}={_word(value)}" for name, value in words.items())

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{name}={_code(value)}' for name, value in self._unusual().items())})"

    def _unusual(self) -> dict[str, object]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}


def _word(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return repr(text) if " " in text else text


def _code(value: object) -> str:
    """Python that gives the value again: inf and nan have no literal."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_code, value))}{',' * (len(value) == 1)})"
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
