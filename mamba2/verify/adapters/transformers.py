"""The Mamba-2 mixers of transformers and its language model, in the releases since 4.47.

A mixer is judged with a cache of one layer, as its model runs it: a hybrid's other layers, attention and experts, have
no textbook here. transformers writes into the cache it is given; here it is copied first, so a state is a value.

Not claimed is what the public API does not offer: to start from any state, gradients through a cache, packed rows on a
CPU, float64 (the scan is float32), errors that name the sizes. A mixer that has limits of dt is there twice, without
any, and as `…_limits`, so that a fault of the limits hides no other.

The modules of mamba_ssm run on a GPU only; they and those of niverel-mamba have no adapter here.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mamba2.verify.adapters._caches import cache_arguments, read_cache
from mamba2.verify.adapters._transformers_mixer import (
    Cached,
    Mixer,
    configuration_of,
    mixer_weights,
    modeling_of,
    start,
)
from mamba2.verify.adapters._transformers_settings import bamba, falcon_h1, granite, mamba2, nemotron_h, zamba2
from mamba2.verify.case import Config
from mamba2.verify.implementation import Implementation, Model
from mamba2.verify.reference import State, Weights

if find_spec("transformers") is None:
    raise ImportError("transformers is missing. Write python -m pip install transformers.")

COMMON = frozenset({"state", "resume", "step", "gradients", "groups", "padding", "save", "bias", "conv_bias"})


class Mamba2(Mixer):
    """`Mamba2Mixer`."""

    claims = COMMON | {"no conv_bias", "init"}
    family = "mamba2"
    name = "Mamba2Mixer"
    words = staticmethod(mamba2)


class Mamba2Limits(Mamba2):
    """`Mamba2Mixer` with limits of dt."""

    claims = Mamba2.claims | {"dt_range"}


class Bamba(Mixer):
    """`BambaMixer`."""

    claims = COMMON | {"no conv_bias"}
    family = "bamba"
    name = "BambaMixer"
    words = staticmethod(bamba)


class BambaLimits(Bamba):
    """`BambaMixer` with limits of dt."""

    claims = Bamba.claims | {"dt_range"}


class Zamba2(Mixer):
    """`Zamba2MambaMixer`, whose convolution always has a bias."""

    claims = COMMON
    family = "zamba2"
    name = "Zamba2MambaMixer"
    words = staticmethod(zamba2)


class FalconH1(Mixer):
    """`FalconH1Mixer`, with or without a norm, before or after the gate."""

    claims = COMMON | {"no conv_bias", "norm before gate", "no norm"}
    family = "falcon_h1"
    name = "FalconH1Mixer"
    words = staticmethod(falcon_h1)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # The model hands it to its mixers: ones, as all multipliers are.
        multipliers = self.modeling.compute_mup_vector(self.settings)
        self.module.register_buffer("mup_vector", multipliers, persistent=False)


class FalconH1Limits(FalconH1):
    """`FalconH1Mixer` with limits of dt."""

    claims = FalconH1.claims | {"dt_range"}


class NemotronH(Mixer):
    """`NemotronHMamba2Mixer`."""

    claims = COMMON | {"no conv_bias"}
    family = "nemotron_h"
    name = "NemotronHMamba2Mixer"
    words = staticmethod(nemotron_h)


class NemotronHLimits(NemotronH):
    """`NemotronHMamba2Mixer` with limits of dt, and the usual least dt of a fresh model, which is none."""

    claims = NemotronH.claims | {"dt_range"}
    words = staticmethod(lambda config: nemotron_h(config) | {"time_step_min": config.dt_init[0]})


class Granite(Mixer):
    """`GraniteMoeHybridMambaLayer`."""

    claims = COMMON | {"no conv_bias"}
    family = "granitemoehybrid"
    name = "GraniteMoeHybridMambaLayer"
    words = staticmethod(granite)


class GraniteLimits(Granite):
    """`GraniteMoeHybridMambaLayer` with limits of dt."""

    claims = Granite.claims | {"dt_range"}


class Mamba2ForCausalLM(Model):
    """`Mamba2ForCausalLM` from embeddings to logits, with a tied head."""

    claims = COMMON | {"no conv_bias", "tied"}
    family = "mamba2"
    module: Any

    def __init__(self, config: Config) -> None:
        self.modeling = modeling_of(self.family)
        options = {"num_hidden_layers": config.layers, "vocab_size": 7, "tie_word_embeddings": True}
        self.settings = configuration_of(self.family)(**mamba2(config) | options)
        self.module = self.modeling.Mamba2ForCausalLM(self.settings)

    def weights(self) -> Weights:
        """Each block's with its norm in front, the last norm, and the head."""
        own = dict(self.module.named_parameters(remove_duplicate=False))
        found = {"norm": own["backbone.norm_f.weight"], "head": own["lm_head.weight"]}
        for layer in range(self.settings.num_hidden_layers):
            prefix = f"backbone.layers.{layer}."
            mixer = {
                name.removeprefix(f"{prefix}mixer."): each for name, each in own.items() if name.startswith(prefix)
            }
            block = mixer_weights(mixer) | {"norm": own[f"{prefix}norm.weight"]}
            found |= {f"{layer}.{name}": each for name, each in block.items()}
        return found

    def initial_state(self, batch: int) -> None:
        """The first call makes a cache."""

    def read_state(self, state: Cached) -> State:
        """One layer after the other."""
        layers = range(self.settings.num_hidden_layers)
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
        """As transformers loads."""
        self.module = type(self.module).from_pretrained(path, dtype=torch.float32)

    def _call(self, u: Tensor, state: Cached | None, mask: Tensor | None) -> tuple[Tensor, Cached]:
        cache, seen = start(self.modeling, self.settings, u, state)
        time = u.shape[1]
        given = cache_arguments(self.module.forward, cache, seen, time)
        outputs = self.module(inputs_embeds=u, attention_mask=mask, use_cache=True, **given)
        return outputs.logits, Cached(cache, seen + time)


_ALL: dict[str, type[Mixer] | type[Mamba2ForCausalLM]] = {
    "mamba2": Mamba2,
    "mamba2_limits": Mamba2Limits,
    "bamba": Bamba,
    "bamba_limits": BambaLimits,
    "zamba2": Zamba2,
    "falcon_h1": FalconH1,
    "falcon_h1_limits": FalconH1Limits,
    "nemotron_h": NemotronH,
    "nemotron_h_limits": NemotronHLimits,
    "granite": Granite,
    "granite_limits": GraniteLimits,
    "causal_lm": Mamba2ForCausalLM,
}


def _offered(implementation: type[Mixer] | type[Mamba2ForCausalLM]) -> bool:
    """Whether the installed release has it: hybrids came one by one, and their limits after them."""
    if find_spec(f"transformers.models.{implementation.family}") is None:
        return False
    limits = "dt_range" in implementation.claims
    return not limits or hasattr(configuration_of(implementation.family)(), "time_step_limit")


IMPLEMENTATIONS: dict[str, type[Implementation]] = {name: each for name, each in _ALL.items() if _offered(each)}
"""Those that the installed release has."""
