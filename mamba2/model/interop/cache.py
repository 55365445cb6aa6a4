"""The cache of one layer in transformers and in mamba_ssm, which is the same in both, as our state."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mamba2.model.block import BlockState
from mamba2.shapes import shaped


@shaped
def state_from_cache(
    conv_state: Float[Tensor, "batch conv width"], ssm_state: Float[Tensor, "batch head channel state"]
) -> BlockState:
    """The state of a layer's cache, whose oldest input is beyond what the next convolution sees."""
    return BlockState(conv_state[..., 1:].mT, ssm_state)


@shaped
def cache_from_state(
    state: BlockState,
) -> tuple[Float[Tensor, "batch conv width"], Float[Tensor, "batch head channel state"]]:
    """A layer's cache; 0 stands for its oldest input, which nothing reads."""
    return F.pad(state.conv.mT, (1, 0)), state.ssm
