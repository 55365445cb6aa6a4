"""Tokens in, logits of the next token out, at every time step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mamba2.config import ModelConfig
from mamba2.errors import ConfigError
from mamba2.model.backbone import Backbone, BackboneState
from mamba2.shapes import shaped


class LanguageModel(nn.Module):
    """Embedding, `Backbone`, and a head without bias: logits = backbone(E[tokens])·Wᵀ, with W = E where it is tied.

    Raises:
        ConfigError: the vocabulary is no whole number of at least 1.
    """

    def __init__(self, config: ModelConfig, *, vocabulary: int, tied: bool) -> None:
        super().__init__()
        if type(vocabulary) is not int or vocabulary < 1:
            raise ConfigError(f"LanguageModel: vocabulary must be a whole number of at least 1; got {vocabulary!r}.")
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.backbone = Backbone(config)
        # A tied head is no second parameter: there is nothing that loading, copying or moving could untie.
        self.head = None if tied else nn.Linear(config.d_model, vocabulary, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)  # GPT-2, section 2.3

    @property
    def vocabulary(self) -> int:
        """Tokens there are."""
        return self.embedding.num_embeddings

    @property
    def tied(self) -> bool:
        """Whether the embedding is the head as well."""
        return self.head is None

    def initial_state(self, batch: int) -> BackboneState:
        """The state before the first token."""
        return self.backbone.initial_state(batch)

    @shaped
    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        state: BackboneState,
        mask: Bool[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time vocabulary"], BackboneState]:
        """Logits after every token, going on from `state`; the ones at t know the tokens up to t.

        Where `mask` is False a token is a pad, whatever its number, and its logits mean nothing.
        """
        if mask is None:
            return self._run(tokens, state, self.backbone)
        return self._run(torch.where(mask, tokens, 0), state, partial(self.backbone, mask=mask))

    @shaped
    def step(
        self, tokens: Int[Tensor, "batch 1"], state: BackboneState
    ) -> tuple[Float[Tensor, "batch 1 vocabulary"], BackboneState]:
        """The logits after one more token."""
        return self._run(tokens, state, self.backbone.step)

    def _run(
        self, tokens: Int[Tensor, "batch time"], state: BackboneState, backbone: Callable[..., Any]
    ) -> tuple[Float[Tensor, "batch time vocabulary"], BackboneState]:
        x, state = backbone(self.embedding(tokens), state)
        return F.linear(x, self.embedding.weight) if self.head is None else self.head(x), state
