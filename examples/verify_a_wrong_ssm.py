"""A scan that is right with one group of heads and wrong with two: what the laws say to it, and to the mended one.

python examples/verify_a_wrong_ssm.py
"""

import torch

from mamba2.verify import Scan, Verdict, laws, verify
from mamba2.verify.table import details


class Tiled(Scan):
    """Lays groups out as 0, 1, 0, 1 where heads 0 and 1 read group 0, as llama.cpp did before its fix 15625."""

    claims = frozenset({"float64", "groups", "state", "resume", "initial state"})

    def __init__(self, config):
        """Nothing to build: a scan has no parameters."""

    def per_head(self, each, times):
        return each.repeat(1, 1, times, 1)

    def run(self, x, dt, A, B, C, state):
        """S[t] = exp(dt[t]·A) S[t-1] + dt[t]·x[t] ⊗ B[t], y[t] = S[t] C[t]."""
        B, C = (self.per_head(each, x.shape[2] // each.shape[2]) for each in (B, C))
        ys = [x[:, :0]]
        for t in range(x.shape[1]):
            decay = torch.exp(dt[:, t] * A)[..., None, None]
            state = decay * state + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
            ys.append((state * C[:, t, :, None]).sum(-1)[:, None])
        return torch.cat(ys, dim=1), state

    def read_state(self, state):
        return {"ssm": state}

    def write_state(self, tensors):
        return tensors["ssm"]


class Mended(Tiled):
    """Each group beside itself."""

    def per_head(self, each, times):
        return each.repeat_interleave(times, dim=2)


def main() -> list[Verdict]:
    """Verdicts of two laws on each."""
    asked = [laws.stopping_and_going_on_changes_nothing, laws.head_h_reads_group_h_G_over_H]
    verdicts = list(verify({"tiled": Tiled, "mended": Mended}, examples=20, laws=asked))
    for each in verdicts:
        print(f"{each.law.id:<4}{each.target:<8}{each.outcome:<8}{each.case.in_words if each.case else ''}")
    print(*(details(each) for each in verdicts if each.outcome == "broken"))  # with a test to paste
    return verdicts


if __name__ == "__main__":
    verdicts = main()
