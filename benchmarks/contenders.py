"""What is compared: the bare matrix products, this package in both forms, and peers with the same weights."""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import Tensor, nn

from mamba2.model.backbone import Backbone
from mamba2.model.interop import block_to_mamba_ssm, to_transformers
from mamba2.model.language import LanguageModel
from mamba2.ops.norm import rms_norm


class Contender(Protocol):
    """An adapter: a stack of blocks with the weights of a `Backbone`, from a zero state."""

    def run(self, x: Tensor) -> Tensor:
        """The output of a whole sequence, in the grad mode of the caller."""

    def start(self, batch: int) -> Any:
        """The state before the first step."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One time step."""

    def parameters(self) -> list[Tensor]:
        """What is trained."""


class Products:
    """GEMM-only: both projections of each block, forward and backward, and nothing else."""

    def __init__(self, backbone: Backbone) -> None:
        self._blocks = [(each.in_proj, each.out_proj) for each in backbone.blocks]
        self._inner = backbone.config.d_inner

    def run(self, x: Tensor) -> Tensor:
        """Each product once; what lies between them is cut to size, which costs nothing."""
        for in_proj, out_proj in self._blocks:
            x = _Pair.apply(x, in_proj.weight, out_proj.weight, self._inner)
        return x

    def start(self, batch: int) -> None:
        """There is none."""

    def step(self, x: Tensor, state: None) -> tuple[Tensor, None]:
        """The same products of one step."""
        return self.run(x), state

    def parameters(self) -> list[Tensor]:
        """The weights of the products."""
        return [linear.weight for pair in self._blocks for linear in pair]


class _Pair(torch.autograd.Function):
    """out_proj of a part of in_proj, with gradients that are products of the full sizes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, inward: Tensor, outward: Tensor, inner: int) -> Tensor:
        wide = x.flatten(0, -2) @ inward.mT
        ctx.save_for_backward(x, inward, outward, wide)
        ctx.inner = inner
        return (wide[:, :inner] @ outward.mT).view(x.shape)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, inward, outward, wide = ctx.saved_tensors
        dy = dy.flatten(0, -2)
        dy @ outward
        return (wide @ inward).view(x.shape), wide.mT @ x.flatten(0, -2), dy.mT @ wide[:, : ctx.inner], None


class Ours:
    """A `Backbone` as it chooses itself."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone

    def run(self, x: Tensor) -> Tensor:
        """From a zero state."""
        return self._backbone(x, self.start(len(x)))[0]

    def start(self, batch: int) -> Any:
        """Zeros."""
        return self._backbone.initial_state(batch)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        return self._backbone.step(x, state)

    def parameters(self) -> list[Tensor]:
        """All."""
        return list(self._backbone.parameters())


class Composed(Ours):
    """A `Backbone` in torch's own operations, as it runs under autocast, with pads or compiled."""

    def run(self, x: Tensor) -> Tensor:
        """From a zero state."""
        with patch("mamba2.model.block.why_composed", lambda *_: "asked for"):
            return super().run(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        with patch("mamba2.model.block.why_composed_step", lambda *_: "asked for"):
            return super().step(x, state)


class Compiled(Ours):
    """A `Backbone` compiled by torch, which takes a C++ compiler and minutes."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone)
        self._forward, self._step = torch.compile(backbone), torch.compile(backbone.step)

    def run(self, x: Tensor) -> Tensor:
        """From a zero state."""
        return self._forward(x, self.start(len(x)))[0]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        return self._step(x, state)


class Transformers:
    """`Mamba2Model` of transformers."""

    def __init__(self, backbone: Backbone, *, chunk: int) -> None:
        transformers = importlib.import_module("transformers")
        model = LanguageModel(backbone.config, vocabulary=2, tied=True)
        model.backbone = backbone
        settings, weights = to_transformers(model)
        config = transformers.Mamba2Config(**settings | {"chunk_size": chunk})
        whole = transformers.Mamba2ForCausalLM(config)
        whole.load_state_dict(weights, strict=False)
        self._model: nn.Module = whole.backbone.to(next(backbone.parameters()).device)

    def run(self, x: Tensor) -> Tensor:
        """From no cache."""
        return self._model(inputs_embeds=x, use_cache=False).last_hidden_state

    def start(self, batch: int) -> Any:  # noqa: ARG002
        """An empty cache, which learns the batch from the first step."""
        cache = importlib.import_module("transformers.cache_utils").DynamicCache
        return cache(config=self._model.config)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step; the cache is changed in place."""
        return self._model(inputs_embeds=x, use_cache=True, cache=state).last_hidden_state, state

    def parameters(self) -> list[Tensor]:
        """All."""
        return list(self._model.parameters())


class Niverel:
    """Blocks of niverel-mamba between our norms."""

    def __init__(self, backbone: Backbone) -> None:
        library = importlib.import_module("niverel_mamba")
        make = importlib.import_module("niverel_mamba.torch").Mamba2
        self._norms = [*backbone.norm_weights, backbone.last_norm_weight]
        self._eps, self._blocks = backbone.config.norm_eps, nn.ModuleList()
        for block in backbone.blocks:
            settings, weights = block_to_mamba_ssm(block)
            config = library.Mamba2Config(**settings | {"chunk_size": 64})
            self._blocks.append(make(config).to(block.A_log.device))
            self._blocks[-1].load_state_dict(weights)

    def run(self, x: Tensor) -> Tensor:
        """From a zero state."""
        for block, norm in zip(self._blocks, self._norms[:-1], strict=True):
            x = x + block(rms_norm(x, norm, eps=self._eps))
        return rms_norm(x, self._norms[-1], eps=self._eps)

    def start(self, batch: int) -> Any:
        """Zeros."""
        return [block.allocate_inference_state(batch) for block in self._blocks]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step."""
        after = []
        for block, norm, before in zip(self._blocks, self._norms[:-1], state, strict=True):
            y, new = block.step(rms_norm(x, norm, eps=self._eps), before)
            x = x + y
            after.append(new)
        return rms_norm(x, self._norms[-1], eps=self._eps), after

    def parameters(self) -> list[Tensor]:
        """All."""
        return [*self._blocks.parameters(), *self._norms]


def contenders(backbone: Backbone, names: list[str]) -> dict[str, Contender]:
    """Those that are asked for and installed, the products first; another is 'module:factory' taking the backbone."""
    known: dict[str, Callable[[Backbone], Contender]] = {"ours": Ours, "composed": Composed, "compiled": Compiled}
    if importlib.util.find_spec("transformers"):
        for chunk in (64, 256):
            known[f"transformers {chunk}"] = partial(Transformers, chunk=chunk)
    if importlib.util.find_spec("niverel_mamba"):
        known["niverel"] = Niverel
    found: dict[str, Contender] = {"products": Products(backbone)}
    for name in names:
        if ":" in name:
            module, _, factory = name.partition(":")
            found[name] = getattr(importlib.import_module(module), factory)(backbone)
        elif name in known:
            found[name] = known[name](backbone)
    return found
