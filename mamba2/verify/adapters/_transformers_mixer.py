"""A mixer of transformers as the laws see it: called with a cache of one layer, which is copied first."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from mamba2.verify.adapters._caches import advance, cache_arguments, copy_cache, new_cache, read_cache
from mamba2.verify.adapters._names import mixer_weights
from mamba2.verify.adapters._transformers_settings import Settings
from mamba2.verify.case import Config
from mamba2.verify.implementation import Block
from mamba2.verify.reference import State, Weights


class Cached(NamedTuple):
    """A cache, and how many steps it has seen."""

    cache: Any
    seen: int


class Mixer(Block):
    """A mixer of one layer."""

    family: ClassVar[str]
    name: ClassVar[str]
    modeling: ModuleType
    module: Any

    def __init__(self, config: Config) -> None:
        self.modeling = modeling_of(self.family)
        self.settings = configuration_of(self.family)(**self.words(config))
        self.module = getattr(self.modeling, self.name)(self.settings, layer_idx=0)

    @staticmethod
    def words(config: Config) -> Settings:
        """The config in this mixer's words."""
        raise NotImplementedError

    def weights(self) -> Weights:
        """Under the textbook's names."""
        return mixer_weights(self.parameters())

    def initial_state(self, batch: int) -> None:
        """The first call makes a cache."""

    def read_state(self, state: Cached) -> State:
        """What the cache holds of the layer."""
        return read_cache(state.cache, layer=0)

    def run(self, u: Tensor, state: Cached | None) -> tuple[Tensor, Cached]:
        """All steps."""
        return self._call(u, state, None)

    def step(self, u: Tensor, state: Cached | None) -> tuple[Tensor, Cached]:
        """One step: transformers knows it by the length."""
        return self._call(u, state, None)

    def run_padded(self, u: Tensor, state: Cached | None, mask: Tensor) -> tuple[Tensor, Cached]:
        """All steps but the pads."""
        return self._call(u, state, mask.long())

    def paths(self) -> dict[str, Callable[..., Any]]:
        """Without a cache, as in training."""
        return {"without a cache": lambda u, state: (self.module(u), self.run(u, state)[1])}

    def _call(self, u: Tensor, state: Cached | None, mask: Tensor | None) -> tuple[Tensor, Cached]:
        cache, seen = start(self.modeling, self.settings, u, state)
        time = u.shape[1]
        given = cache_arguments(self.module.forward, cache, seen, time)
        outputs = self.module(u, attention_mask=mask, **given)
        advance(cache, time)
        return outputs, Cached(cache, seen + time)


def modeling_of(family: str) -> ModuleType:
    # That kernels for a GPU are missing is no news on a CPU, and saving a tiny model needs no progress bar.
    logging = import_module("transformers.utils.logging")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return import_module(f"transformers.models.{family}.modeling_{family}")


def configuration_of(family: str) -> Any:
    module = import_module(f"transformers.models.{family}.configuration_{family}")
    (found,) = (each for each in vars(module).values() if getattr(each, "model_type", "") == family)
    return found


def start(modeling: ModuleType, settings: Any, u: Tensor, state: Cached | None) -> Cached:
    """A cache to write into: a new one, or a copy of that of a state."""
    if state is None:
        return Cached(new_cache(modeling, settings, len(u), u.dtype), 0)
    return Cached(copy_cache(state.cache), state.seen)
