"""Settings as frozen dataclasses, checked when they are made, and their TOML form."""

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from mamba2.errors import ConfigError

FEATURES = ("ret", "range", "body", "loc", "vol_z", "log_s", "tod_sin", "tod_cos", "gap")
"""The bar features there are, in their order."""

TARGETS = ("return", "range")
"""What can be forecast: the log return and the log range of the bar one horizon ahead, both over the volatility."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _require_counts(config: object, names: str, least: int = 1) -> None:
    """Each named field is a whole number of at least `least`."""
    for name in names.split():
        value = getattr(config, name)
        _require(
            type(value) is int and value >= least,
            f"{name} = {value!r} is not a whole number of at least {least}.",
        )


def _is_range(pair: tuple[float, float]) -> bool:
    return len(pair) == 2 and 0 <= pair[0] <= pair[1]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and options of the network; names as in the Mamba-2 paper (arXiv 2405.21060)."""

    d_model: int = 256
    """Width of the residual stream."""
    layers: int = 6
    d_state: int = 16
    """N, the states per channel."""
    expand: int = 2
    """d_inner = expand·d_model."""
    headdim: int = 64
    """P, the channels per head; heads = d_inner / headdim."""
    n_groups: int = 1
    """Groups of heads that share B and C, and normalise together."""
    d_conv: int = 4
    """Time steps the causal convolution sees."""
    chunk: int = 64
    """Time steps that the parallel scan treats as one block; changes the speed, not the result."""
    dt_range: tuple[float, float] = (0.0, math.inf)
    """Limits of dt, applied after softplus on every path."""
    dt_init: tuple[float, float] = (1e-3, 1e-1)
    """softplus(dt_bias) starts log-uniform within."""
    A_init: tuple[float, float] = (1.0, 16.0)
    """-A starts uniform within."""
    bias: bool = False
    """Biases on the input and output projections."""
    conv_bias: bool = True
    D: str = "head"
    """The skip: one value per 'head', one per 'channel', or 'none'."""
    norm: str = "after gate"
    """The gated norm: 'after gate' norm(y·silu(z)), 'before gate' norm(y)·silu(z), or 'none' y·silu(z)."""
    norm_eps: float = 1e-5
    quantiles: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    """Levels the forecaster predicts, ascending."""

    def __post_init__(self) -> None:
        _require_counts(self, "d_model layers d_state expand headdim n_groups d_conv chunk")
        _require(
            self.d_inner % self.headdim == 0,
            f"d_inner = expand·d_model = {self.d_inner} is not a multiple of headdim {self.headdim}.",
        )
        _require(
            self.n_heads % self.n_groups == 0,
            f"heads = expand·d_model / headdim = {self.n_heads} is not a multiple of n_groups {self.n_groups}.",
        )
        _require(
            _is_range(self.dt_range),
            f"dt_range = {self.dt_range} is not (low, high) with 0 <= low <= high.",
        )
        for name in ("dt_init", "A_init"):
            pair = getattr(self, name)
            _require(
                _is_range(pair) and pair[0] > 0 and math.isfinite(pair[1]),
                f"{name} = {pair} is not (low, high) with 0 < low <= high < inf.",
            )
        for name, values in (("D", ("head", "channel", "none")), ("norm", ("after gate", "before gate", "none"))):
            _require(getattr(self, name) in values, f"{name} = {getattr(self, name)!r} is not one of {values}.")
        _require(self.norm_eps > 0, f"norm_eps = {self.norm_eps} is not positive.")
        levels = (0.0, *self.quantiles, 1.0)
        _require(
            len(levels) > 2 and all(low < high for low, high in pairwise(levels)),
            f"quantiles = {self.quantiles} are not ascending within (0, 1).",
        )

    @cached_property
    def d_inner(self) -> int:
        """expand·d_model."""
        return self.expand * self.d_model

    @cached_property
    def n_heads(self) -> int:
        """d_inner / headdim."""
        return self.d_inner // self.headdim

    @cached_property
    def d_xBC(self) -> int:
        """Channels of the convolution: x, B and C side by side, d_inner + 2·n_groups·d_state."""
        return self.d_inner + 2 * self.n_groups * self.d_state

    @cached_property
    def projection(self) -> tuple[int, int, int]:
        """Widths of the input projection's parts: gate, xBC, dt."""
        return self.d_inner, self.d_xBC, self.n_heads


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which bars, and how they are cut into windows."""

    contract: str = "front"
    """'front' (most volume in the previous session), 'all' outrights, or one raw symbol such as '6EH4'."""
    features: tuple[str, ...] = FEATURES
    targets: tuple[str, ...] = ("return",)
    window: int = 60
    """Bars in a training sequence."""
    stride: int | None = None
    """Bars from one window's start to the next; the window when not given."""
    horizon: int = 1
    """The target lies this many bars ahead."""
    warm_up: int = 60
    """First bars of a contract, which the features need to settle: no window starts in them."""
    max_gap: float | None = None
    """Minutes between two bars that still belong together; not given: 30, an hour for 1h and four days for 1d bars."""
    skip_degraded: bool = False
    """Leave out the UTC days that `condition.json` beside the files marks as anything but available."""
    validation_fraction: float = 0.2
    """The last part in time, held back; 0 for none."""

    def __post_init__(self) -> None:
        _require_counts(self, "window horizon")
        _require_counts(self, "warm_up", least=0)
        if self.stride is not None:
            _require_counts(self, "stride")
        _require(bool(self.contract), "contract is empty: name 'front', 'all' or a raw symbol.")
        for name, known in (("features", FEATURES), ("targets", TARGETS)):
            chosen = getattr(self, name)
            _require(
                len(chosen) > 0 and len(set(chosen)) == len(chosen) and set(chosen) <= set(known),
                f"{name} = {chosen} are not different names out of {known}.",
            )
        _require(self.max_gap is None or self.max_gap > 0, f"max_gap = {self.max_gap} minutes is not positive.")
        _require(
            0 <= self.validation_fraction < 1,
            f"validation_fraction = {self.validation_fraction} is not in [0, 1).",
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the network is trained."""

    epochs: int = 3
    batch: int = 32
    """Windows of one optimizer step, over however many processes and parts they are spread."""
    learning_rate: float = 1e-3
    """Peak of the schedule: linear warm-up, then a cosine down to a tenth."""
    warm_up_steps: int = 1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    seed: int = 0
    device: str = "cpu"
    accumulate: int = 1
    """Parts that each process runs its share of a batch in, one after the other: less memory, the same gradient."""
    carry_state: bool = False
    """A window goes on from the detached state of the one before it in its segment, where there is one."""
    precision: str = "float32"
    """Of the passes: 'float32', or 'bf16' for autocast; weights, states and the validation stay float32."""
    save_every: int | None = None
    """Steps between checkpoints within an epoch, beside the one at its end."""
    keep: int | None = None
    """So many of the newest checkpoints stay, and the best; all when not given."""

    def __post_init__(self) -> None:
        _require_counts(self, "epochs batch accumulate")
        _require_counts(self, "warm_up_steps seed", least=0)
        _require(self.seed < 2**63, f"seed = {self.seed} is not below 2**63.")
        for name in ("learning_rate", "max_grad_norm"):
            value = getattr(self, name)
            _require(0 < value < math.inf, f"{name} = {value} is not positive and finite.")
        _require(0 <= self.weight_decay < math.inf, f"weight_decay = {self.weight_decay} is not 0 or more.")
        _require(
            self.precision in ("float32", "bf16"), f"precision = {self.precision!r} is not one of ('float32', 'bf16')."
        )
        for name in ("save_every", "keep"):
            if getattr(self, name) is not None:
                _require_counts(self, name)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One whole run: model, data, training."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        _require(
            not self.train.carry_state or self.data.stride in (None, self.data.window),
            f"carry_state needs windows end to end: stride = {self.data.stride} is not the window {self.data.window}.",
        )

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back as an equal config."""
        parts = []
        for section, values in asdict(self).items():
            lines = [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]
            parts.append("\n".join([f"[{section}]", *lines, ""]))
        return "\n".join(parts)

    @staticmethod
    def from_toml(text: str, where: str = "config") -> "RunConfig":
        """Reads sections [model], [data] and [train]; what is not given keeps its default.

        Raises:
            ConfigError: the text is no TOML, names an unknown setting, or a value has the wrong type or size.
        """
        try:
            sections = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{where}: not a TOML file: {error}") from error
        kinds = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig}
        _require_known(sections, kinds, where, "section")
        try:
            return RunConfig(**{name: _section(kinds[name], values, name) for name, values in sections.items()})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error

    @staticmethod
    def load(path: Path) -> "RunConfig":
        """Reads a TOML file; see `from_toml`.

        Raises:
            ConfigError: the file cannot be read, or its content is refused.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read as a config: {error}") from error
        return RunConfig.from_toml(text, str(path))


def _require_known(given: Mapping[str, Any], known: Mapping[str, Any], where: str, what: str) -> None:
    for name in given:
        _require(name in known, f"{where}: unknown {what} {name!r}; there are {', '.join(known)}.")


def _section(kind: type, values: Any, name: str) -> Any:
    _require(isinstance(values, dict), f"{name} is not a section: write [{name}] on a line of its own.")
    known = {each.name: each for each in fields(kind)}
    _require_known(values, known, f"[{name}]", "setting")
    for key, value in values.items():
        _require_type(f"[{name}] {key}", value, known[key].type)
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def _require_type(where: str, value: Any, annotation: Any) -> None:
    """A TOML value fits the field's annotation; a whole number is a number too."""
    if annotation in (int, int | None):
        fits, wanted = type(value) is int, "a whole number"
    elif annotation in (float, float | None):
        fits, wanted = type(value) in (int, float), "a number"
    elif annotation in (bool, str):
        fits, wanted = type(value) is annotation, {bool: "true or false", str: "a text"}[annotation]
    else:
        kind = str if annotation == tuple[str, ...] else (int, float)
        wanted = "a list of texts" if kind is str else "a list of numbers"
        fits = isinstance(value, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)
    _require(fits, f"{where} = {value!r} is not {wanted}.")


def _toml(value: Any) -> str:
    """One value of a config; a writer of this size beats one more dependency on machines without a network."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are spelled alike in TOML
    return json.dumps(value, ensure_ascii=False)
