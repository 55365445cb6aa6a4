"""What the law book does not say of our scan: its form under compilation, and what is prepared for it."""

from typing import Any
from unittest.mock import patch

import torch
from hypothesis import given
from torch import Tensor

from mamba2.ops.scan import ScanInput, prepare_scan_input
from mamba2.verify import law_tests, laws
from mamba2.verify.adapters.ours import ScanChunked
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import Sizes, Source, all_sizes, seeds


class ScanAsCompiled(ScanChunked):
    """A compiled graph has no loop over the chunks; its form runs here without the compiler."""

    def run(self, *arguments: Tensor) -> Any:
        with patch.object(torch.compiler, "is_compiling", lambda: True):
            return super().run(*arguments)


test_law_as_compiled = law_tests(
    ScanAsCompiled,
    laws=[
        laws.a_run_is_the_textbook,
        laws.the_chunk_changes_nothing,
        laws.precision_is_that_of_the_dtype,
        laws.what_is_finite_stays_finite,
        laws.gradients_are_the_textbooks,
        laws.the_smallest_sizes_work_or_are_refused,
        laws.a_state_is_a_value,
    ],
)


@given(all_sizes(), seeds)
def test_the_prepared_decay_is_never_positive_and_its_time_step_is_within_limits(sizes: Sizes, seed: int) -> None:
    source, each_step = Source(seed), (sizes.batch, sizes.time)
    dt, A_log = source.normal(*each_step, sizes.head) * 10, source.normal(sizes.head)
    ones = torch.ones(*each_step, sizes.head, sizes.channel, dtype=torch.float64)
    B, C = source.normal(*each_step, sizes.group, sizes.state), source.normal(*each_step, sizes.group, sizes.state)

    prepared = prepare_scan_input(ones, dt, A_log, B, C, source.normal(sizes.head) * 3, dt_range=(0.01, 0.1))

    assert isinstance(prepared, ScanInput)
    assert ((prepared.x >= 0.01) & (prepared.x <= 0.1)).all()
    require_close("log_decay", prepared.log_decay, -prepared.x[..., 0] * A_log.exp())
