"""The Mamba-2 mixers of transformers and its language models, in the releases since 4.47.

A mixer is judged with a cache of one layer, as its model runs it. A language model is judged from embeddings to logits;
what else a hybrid has, attention and feed-forward layers, has no textbook here: it runs, and its last projection is 0.
transformers writes into the cache it is given; here it is copied first, so a state is a value.

Not claimed is what the public API does not offer: to start from any state, gradients through a cache, packed rows on a
CPU, float64 (the scan is float32), errors that name the sizes. A mixer that has limits of dt is there twice, without
any, and as `…_limits`, so that a fault of the limits hides no other.
"""

from importlib.util import find_spec

from mamba2.verify.adapters._transformers_mixer import Mixer, configuration_of
from mamba2.verify.adapters._transformers_model import CausalLM
from mamba2.verify.adapters._transformers_settings import (
    bamba,
    bamba_lm,
    falcon_h1,
    falcon_h1_lm,
    granite,
    granite_lm,
    mamba2,
    mamba2_lm,
    nemotron_h,
    nemotron_h_lm,
    zamba2,
    zamba2_lm,
)
from mamba2.verify.case import Config
from mamba2.verify.implementation import Implementation

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


class Mamba2ForCausalLM(CausalLM):
    """`Mamba2ForCausalLM`, with a tied head."""

    claims = COMMON | {"no conv_bias", "tied"}
    family = "mamba2"
    name = "Mamba2ForCausalLM"
    words = staticmethod(mamba2_lm)
    root, norm, mixer, last_norm = "backbone", "norm", "mixer", "norm_f"


class BambaForCausalLM(CausalLM):
    """`BambaForCausalLM`."""

    claims = COMMON | {"no conv_bias", "tied"}
    family = "bamba"
    name = "BambaForCausalLM"
    words = staticmethod(bamba_lm)
    silent = ("self_attn.o_proj.weight", "feed_forward.down_proj.weight")


class Zamba2ForCausalLM(CausalLM):
    """`Zamba2ForCausalLM`, whose last layer has attention before its mixer."""

    claims = COMMON | {"tied"}
    family = "zamba2"
    name = "Zamba2ForCausalLM"
    words = staticmethod(zamba2_lm)
    silent = (".linear.weight",)

    def layer(self, index: int) -> str:
        """The mixer of a layer with attention lies deeper."""
        is_last = index == self.settings.num_hidden_layers - 1
        return f"{super().layer(index)}{'.mamba_decoder' if is_last else ''}"


class FalconH1ForCausalLM(CausalLM):
    """`FalconH1ForCausalLM`, which has attention beside each mixer."""

    claims = FalconH1.claims | {"tied"}
    family = "falcon_h1"
    name = "FalconH1ForCausalLM"
    words = staticmethod(falcon_h1_lm)
    silent = ("self_attn.o_proj.weight", "feed_forward.down_proj.weight")


class NemotronHForCausalLM(CausalLM):
    """`NemotronHForCausalLM`."""

    claims = COMMON | {"no conv_bias", "tied"}
    family = "nemotron_h"
    name = "NemotronHForCausalLM"
    words = staticmethod(nemotron_h_lm)
    norm, mixer, last_norm = "norm", "mixer", "norm_f"
    silent = ("mixer.o_proj.weight",)


class GraniteForCausalLM(CausalLM):
    """`GraniteMoeHybridForCausalLM`, without experts."""

    claims = COMMON | {"no conv_bias", "tied"}
    family = "granitemoehybrid"
    name = "GraniteMoeHybridForCausalLM"
    words = staticmethod(granite_lm)
    last_norm = "norm"
    silent = ("self_attn.o_proj.weight", "shared_mlp.output_linear.weight")


_ALL: dict[str, type[Mixer] | type[CausalLM]] = {
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
    "mamba2_lm": Mamba2ForCausalLM,
    "bamba_lm": BambaForCausalLM,
    "zamba2_lm": Zamba2ForCausalLM,
    "falcon_h1_lm": FalconH1ForCausalLM,
    "nemotron_h_lm": NemotronHForCausalLM,
    "granite_lm": GraniteForCausalLM,
}


def _offered(implementation: type[Mixer] | type[CausalLM]) -> bool:
    """Whether the installed release has it: hybrids came one by one, and their limits after them."""
    if find_spec(f"transformers.models.{implementation.family}") is None:
        return False
    limits = "dt_range" in implementation.claims
    return not limits or hasattr(configuration_of(implementation.family)(), "time_step_limit")


IMPLEMENTATIONS: dict[str, type[Implementation]] = {name: each for name, each in _ALL.items() if _offered(each)}
"""Those that the installed release has."""
