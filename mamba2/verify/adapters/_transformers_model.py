"""A language model of transformers as the laws see it: from embeddings to logits, with a cache that is copied first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mamba2.verify.adapters._caches import cache_arguments, read_cache
from mamba2.verify.adapters._names import mixer_weights
from mamba2.verify.adapters._transformers_mixer import Cached, configuration_of, modeling_of, start
from mamba2.verify.adapters._transformers_settings import Settings
from mamba2.verify.case import Config
from mamba2.verify.implementation import Model
from mamba2.verify.reference import State, Weights, part


class CausalLM(Model):
    """A language model whose layers with a mixer come first."""

    family: ClassVar[str]
    name: ClassVar[str]
    root: ClassVar[str] = "model"
    norm: ClassVar[str] = "input_layernorm"
    mixer: ClassVar[str] = "mamba"
    last_norm: ClassVar[str] = "final_layernorm"
    silent: ClassVar[tuple[str, ...]] = ()
    """The last projections of what has no textbook: they are 0 and stay so."""
    module: Any

    def __init__(self, config: Config) -> None:
        self.layers = config.layers
        self.modeling = modeling_of(self.family)
        self.settings = configuration_of(self.family)(**self.words(config))
        self.module = getattr(self.modeling, self.name)(self.settings)
        for name, each in self.module.named_parameters():
            if name.endswith(self.silent):
                nn.init.zeros_(each)

    @staticmethod
    def words(config: Config) -> Settings:
        """The config in this model's words."""
        raise NotImplementedError

    def layer(self, index: int) -> str:
        """Where the mixer of a layer is, and its norm."""
        return f"{self.root}.layers.{index}"

    def parameters(self) -> dict[str, nn.Parameter]:
        """All but the silent ones."""
        return {name: each for name, each in super().parameters().items() if not name.endswith(self.silent)}

    def weights(self) -> Weights:
        """Each block's with its norm in front, the last norm, and the head."""
        own = dict(self.module.named_parameters(remove_duplicate=False))
        found = {"norm": own[f"{self.root}.{self.last_norm}.weight"], "head": own["lm_head.weight"]}
        for index in range(self.layers):
            layer = part(own, f"{self.layer(index)}.")
            block = mixer_weights(part(layer, f"{self.mixer}.")) | {"norm": layer[f"{self.norm}.weight"]}
            found |= {f"{index}.{name}": each for name, each in block.items()}
        return found

    def initial_state(self, batch: int) -> None:
        """The first call makes a cache."""

    def read_state(self, state: Cached) -> State:
        """One layer after the other."""
        layers = range(self.layers)
        return {f"{i}.{name}": each for i in layers for name, each in read_cache(state.cache, i).items()}

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
        return {
            "without a cache": lambda u, state: (
                self.module(inputs_embeds=u, use_cache=False).logits,
                self.run(u, state)[1],
            )
        }

    def tied(self) -> list[tuple[Tensor, Tensor]]:
        """Embedding and head."""
        return [(self.module.get_input_embeddings().weight, self.module.get_output_embeddings().weight)]

    def save(self, path: Path) -> None:
        """As transformers saves."""
        self.module.save_pretrained(path)

    def load(self, path: Path) -> None:
        """As transformers loads; memory of the file need not be aligned, and sums may then differ in the last bit."""
        self.module = type(self.module).from_pretrained(path, dtype=torch.float32)
        for each in self.module.parameters():
            each.data = each.data.clone()

    def _call(self, u: Tensor, state: Cached | None, mask: Tensor | None) -> tuple[Tensor, Cached]:
        cache, seen = start(self.modeling, self.settings, u, state)
        time = u.shape[1]
        given = cache_arguments(self.module.forward, cache, seen, time)
        outputs = self.module(inputs_embeds=u, attention_mask=mask, use_cache=True, **given)
        return outputs.logits, Cached(cache, seen + time)
