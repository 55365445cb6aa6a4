"""The norms are torch's own, group by group."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mamba2.ops.norm import gated_rms_norm, rms_norm
from mamba2.verify.checks import TOLERANCES, require_close
from mamba2.verify.strategies import Source, all_sizes, dtypes, seeds


@given(all_sizes(), seeds, dtypes)
def test_rms_norm_is_torchs(sizes, seed, dtype):
    source = Source(seed)
    x, weight = source.normal(sizes.batch, sizes.time, sizes.state), source.normal(sizes.state)
    actual = rms_norm(x.to(dtype), weight.to(dtype), eps=1e-5)

    require_close(
        "rms_norm",
        actual.double(),
        F.rms_norm(x, (sizes.state,), weight, eps=1e-5),
        tolerance=TOLERANCES[dtype].outputs,
    )


@given(all_sizes(), seeds, dtypes, st.booleans())
def test_each_group_is_normed_by_itself_and_gated_once(sizes, seed, dtype, before_gate):
    source, d_inner = Source(seed), sizes.head * sizes.channel
    y, gate = source.normal(sizes.batch, sizes.time, d_inner), source.normal(sizes.batch, sizes.time, d_inner)
    weight = source.normal(d_inner)
    opened, width = gate * gate.sigmoid(), d_inner // sizes.group

    def normed(z: torch.Tensor) -> torch.Tensor:
        parts = zip(z.split(width, dim=-1), weight.split(width), strict=True)
        return torch.cat([F.rms_norm(part, (width,), own, eps=1e-5) for part, own in parts], dim=-1)

    actual = gated_rms_norm(
        y.to(dtype), gate.to(dtype), weight.to(dtype), n_groups=sizes.group, eps=1e-5, before_gate=before_gate
    )

    require_close(
        "gated_rms_norm",
        actual.double(),
        normed(y) * opened if before_gate else normed(y * opened),
        tolerance=TOLERANCES[dtype].outputs,
    )
