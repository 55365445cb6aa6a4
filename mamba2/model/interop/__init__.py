"""Weights both ways: transformers' and mamba_ssm's Mamba-2 as ours, and ours as theirs, bit for bit.

Neither library is needed: what is read and written are their configs and state dicts, or folders of these.
"""

from mamba2.model.interop.cache import cache_from_state, state_from_cache
from mamba2.model.interop.folders import load_language_model, save_language_model
from mamba2.model.interop.layout_mamba_ssm import (
    block_from_mamba_ssm,
    block_to_mamba_ssm,
    from_mamba_ssm,
    to_mamba_ssm,
)
from mamba2.model.interop.layout_transformers import from_transformers, to_transformers

__all__ = [
    "block_from_mamba_ssm",
    "block_to_mamba_ssm",
    "cache_from_state",
    "from_mamba_ssm",
    "from_transformers",
    "load_language_model",
    "save_language_model",
    "state_from_cache",
    "to_mamba_ssm",
    "to_transformers",
]
