"""The convolution over a sequence, in parts and step by step is torch's own."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mamba2.ops.conv import causal_conv1d, causal_conv1d_step
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import Sizes, Source, all_sizes, seeds

CONV = 3


@st.composite
def calls(draw: st.DrawFn) -> tuple[Sizes, tuple[Tensor, Tensor, Tensor | None, Tensor]]:
    """x, weight, bias and past."""
    sizes, source = draw(all_sizes()), Source(draw(seeds))
    return sizes, (
        source.normal(sizes.batch, sizes.time, CONV),
        source.normal(CONV, sizes.width),
        source.normal(CONV) if draw(st.booleans()) else None,
        source.normal(sizes.batch, sizes.width - 1, CONV),
    )


@given(calls())
def test_it_is_torchs_grouped_convolution_of_past_and_input(call):
    sizes, (x, weight, bias, past) = call
    seen = torch.cat((past, x), dim=1)
    # torch refuses a sequence shorter than the kernel, so one more step is convolved and dropped
    longer = F.pad(seen, (0, 0, 0, 1)).transpose(1, 2)
    expected = F.conv1d(longer, weight[:, None], bias, groups=CONV).transpose(1, 2)[:, : sizes.time]

    y, after = causal_conv1d(x, weight, bias, past)

    require_close("y", y, expected)
    assert torch.equal(after, seen[:, sizes.time :])


@given(calls())
def test_steps_give_what_the_sequence_gives(call):
    sizes, (x, weight, bias, past) = call
    expected, last = causal_conv1d(x, weight, bias, past)

    steps = [x[:, :0]]
    for t in range(sizes.time):
        y, past = causal_conv1d_step(x[:, t : t + 1], weight, bias, past)
        steps.append(y)

    require_close("y", torch.cat(steps, dim=1), expected)
    assert torch.equal(past, last)


@given(calls())
def test_stopping_anywhere_and_going_on_changes_nothing(call):
    sizes, (x, weight, bias, past) = call
    expected, last = causal_conv1d(x, weight, bias, past)

    first, middle = causal_conv1d(x[:, : sizes.cut], weight, bias, past)
    second, after = causal_conv1d(x[:, sizes.cut :], weight, bias, middle)

    require_close("y", torch.cat((first, second), dim=1), expected)
    assert torch.equal(after, last)
