"""Every function that checks its shapes refuses a tensor that does not fit, in its own name."""

import re

import pytest
import torch
from torch import Tensor

from mamba2.config import ModelConfig
from mamba2.errors import ShapeError
from mamba2.model.backbone import Backbone
from mamba2.model.block import BlockState, Mamba2Block, _Composed
from mamba2.model.forecaster import Forecast, Forecaster
from mamba2.model.interop.cache import cache_from_state, state_from_cache
from mamba2.model.language import LanguageModel
from mamba2.ops.conv import causal_conv1d, causal_conv1d_step
from mamba2.ops.fused.conv import conv_backward, conv_forward
from mamba2.ops.fused.gate import GateTape, gate_backward, gate_forward
from mamba2.ops.fused.mixer import fused_mixer
from mamba2.ops.fused.norm import rms_scale, tangent_
from mamba2.ops.fused.plan import Plan, make_plan, tiles
from mamba2.ops.fused.scan import scan_backward, scan_forward
from mamba2.ops.fused.step import fused_step
from mamba2.ops.fused.tile import State, TileState, tile_backward, tile_forward
from mamba2.ops.norm import gated_rms_norm, rms_norm
from mamba2.ops.padding import align, restore
from mamba2.ops.scan import prepare_scan_input, scan_chunked, scan_sequential, scan_step
from mamba2.train.loss import forecast_loss
from mutation.graft import shaped_functions


def of(shape: str) -> Tensor:
    """Zeros."""
    return torch.zeros([int(size) for size in shape.split()])


def mask(shape: str) -> Tensor:
    return of(shape).bool()


SMALL = ModelConfig(d_model=4, d_state=2, headdim=2, d_conv=3, layers=1)
BLOCK = Mamba2Block(SMALL).requires_grad_(False)
STATE = BlockState(of("2 2 12"), of("2 4 2 2"))
LONE = BlockState(of("1 2 12"), of("1 4 2 2"))
FORECASTER = Forecaster(SMALL, features=3, targets=2)
LANGUAGE = LanguageModel(SMALL, vocabulary=7, tied=True)
TOKENS = torch.zeros(2, 5, dtype=torch.long)
WEIGHTS, OPTIONS = BLOCK._weights(None), BLOCK._options()
FOLDED = WEIGHTS._replace(norm=None)
_, _, TAPE = tile_forward(of("2 4 4"), TileState(*STATE), FOLDED, OPTIONS, chunk=4, keep=True)

REFUSALS = [
    (causal_conv1d, (of("2 5 3"), of("3 2"), None, of("1 1 3")), {}, "axis 'batch' is 1 in past (1, 1, 3) but 2 in x"),
    (causal_conv1d_step, (of("2 1 3"), of("3 2"), of("4"), of("2 1 3")), {}, "axis 'conv' is 4 in bias (4,) but 3 in"),
    (rms_norm, (of("2 5 4"), of("1")), {"eps": 1.0}, "axis 'd_model' is 1 in weight (1,) but 4 in x (2, 5, 4)."),
    (gated_rms_norm, (of("2 5 4"), of("2 1 4"), of("4")), {"eps": 1.0}, "axis 'time' is 1 in gate (2, 1, 4) but 5 in"),
    (align, (of("2 5 4"), mask("1 5")), {}, "axis 'batch' is 1 in mask (1, 5) but 2 in u (2, 5, 4)."),
    (restore, (of("2 5 4"), TOKENS, mask("2 1")), {}, "axis 'time' is 1 in mask (2, 1) but 5 in y (2, 5, 4)."),
    (
        prepare_scan_input,
        (of("2 5 4 3"), of("2 5 4"), of("4"), of("1 5 1 8"), of("2 5 1 8"), of("4")),
        {"dt_range": (0.0, 1.0)},
        "axis 'batch' is 1 in B (1, 5, 1, 8) but 2 in x (2, 5, 4, 3).",
    ),
    *(
        (
            scan,
            (of(f"2 {time} 4 3"), of(f"2 {time} 4"), of(f"2 {time} 1 8"), of(f"1 {time} 1 8"), of("2 4 3 8")),
            options,
            f"axis 'batch' is 1 in C (1, {time}, 1, 8) but 2 in x (2, {time}, 4, 3).",
        )
        for scan, time, options in ((scan_step, 1, {}), (scan_sequential, 5, {}), (scan_chunked, 5, {"chunk": 2}))
    ),
    (conv_forward, (of("2 5 3"), of("3 2"), None, of("1 1 3")), {}, "axis 'batch' is 1 in past (1, 1, 3) but 2 in x"),
    (conv_backward, (of("2 4 3"), of("3 2"), None, of("2 6 3")), {}, "axis 'time+width-1' is 6 in later (2, 6, 3) but"),
    (rms_scale, (of("2 4 1 3"), "1"), {}, "eps must be of type float; got str."),
    (
        tangent_,
        (of("2 4 1 3"), of("2 5 1 3")),
        {},
        "axis 'time' is 5 in unit (2, 5, 1, 3) but 4 in dunit (2, 4, 1, 3).",
    ),
    (
        scan_forward,
        (of("2 1 4 5 3"), of("2 1 4 5"), of("4"), of("1 1 1 5 8"), of("2 1 1 5 8"), None, None),
        {"keep": True},
        "axis 'batch' is 1 in B (1, 1, 1, 5, 8) but 2 in x (2, 1, 4, 5, 3).",
    ),
    (
        scan_backward,
        (TAPE.scan, of("1 1 4 4 2"), None),
        {},
        "axis 'batch' is 1 in dy (1, 1, 4, 4, 2) but 2 in tape.x (2, 1, 4, 4, 2).",
    ),
    (
        gate_forward,
        (of("2 1 4 5 3"), of("1 5 12")),
        {"n_groups": 1, "norm": "none", "eps": 1.0, "keep": True},
        "axis 'batch' is 1 in z (1, 5, 12) but 2 in y (2, 1, 4, 5, 3).",
    ),
    (
        gate_backward,
        (GateTape(of("2 1 4 5 3"), of("2 5 12"), of("2 5 12"), None, None), of("2 1 12")),
        {"norm": "none"},
        "axis 'time' is 1 in dgated (2, 1, 12) but 5 in tape.z (2, 5, 12).",
    ),
    (
        tile_forward,
        (of("2 4 4"), TileState(*LONE), FOLDED, OPTIONS),
        {"chunk": 4, "keep": True},
        "axis 'batch' is 1 in state.conv (1, 2, 12) but 2 in u (2, 4, 4).",
    ),
    (
        tile_backward,
        (TAPE, of("1 4 4"), TileState(*STATE), FOLDED, OPTIONS, FOLDED),
        {},
        "axis 'batch' is 1 in dy (1, 4, 4) but 2 in tape.unit (2, 4, 4).",
    ),
    (
        fused_step,
        (
            of("2 1 8"),
            of("2 1 12"),
            of("1 1 4"),
            State(*STATE),
            of("12 3"),
            None,
            of("4"),
            of("4"),
            None,
            None,
            OPTIONS,
        ),
        {},
        "axis 'batch' is 1 in dt (1, 1, 4) but 2 in z (2, 1, 8).",
    ),
    (
        fused_mixer,
        (of("2 5 4"), State(*STATE), WEIGHTS._replace(A_log=of("3")), OPTIONS, BLOCK._composed),
        {},
        "axis 'head' is 3 in weights.A_log (3,) but 4 in state.ssm (2, 4, 2, 2).",
    ),
    (make_plan, (60.5, 16), {}, "time must be of type int; got float."),
    (tiles, (Plan(8, 4), 3.5, 5), {}, "batch must be of type int; got float."),
    (BLOCK, (of("2 5 4"), LONE), {}, "axis 'batch' is 1 in state.conv (1, 2, 12) but 2 in u (2, 5, 4)."),
    (
        BLOCK.residual,
        (of("2 5 4"), of("3"), STATE),
        {},
        "axis 'd_model' is 3 in norm_weight (3,) but 4 in x (2, 5, 4).",
    ),
    (BLOCK.step, (of("2 2 4"), STATE), {}, "axis '1' is 2 in u (2, 2, 4) but must be 1 (fixed)."),
    (_Composed(BLOCK), (of("2 5 4"), LONE), {}, "axis 'batch' is 1 in state.conv (1, 2, 12) but 2 in u (2, 5, 4)."),
    (
        Backbone(SMALL),
        (of("2 5 4"), (LONE,)),
        {},
        "axis 'batch' is 1 in state[0].conv (1, 2, 12) but 2 in x (2, 5, 4).",
    ),
    (Backbone(SMALL).step, (of("2 2 4"), (STATE,)), {}, "axis '1' is 2 in x (2, 2, 4) but must be 1 (fixed)."),
    (
        FORECASTER,
        (of("2 5 3"), (STATE,), mask("1 5")),
        {},
        "axis 'batch' is 1 in mask (1, 5) but 2 in features (2, 5, 3).",
    ),
    (FORECASTER.step, (of("2 2 3"), (STATE,)), {}, "axis '1' is 2 in features (2, 2, 3) but must be 1 (fixed)."),
    (LANGUAGE, (TOKENS, (STATE,), mask("2 1")), {}, "axis 'time' is 1 in mask (2, 1) but 5 in tokens (2, 5)."),
    (LANGUAGE.step, (TOKENS, (STATE,)), {}, "axis '1' is 5 in tokens (2, 5) but must be 1 (fixed)."),
    (
        state_from_cache,
        (of("2 12 3"), of("1 4 2 2")),
        {},
        "axis 'batch' is 1 in ssm_state (1, 4, 2, 2) but 2 in conv_state",
    ),
    (cache_from_state, (BlockState(STATE.conv, LONE.ssm),), {}, "axis 'batch' is 1 in state.ssm (1, 4, 2, 2) but 2 in"),
    (
        forecast_loss,
        (Forecast(of("2 5 1"), of("2 5 1 3")), of("2 5 1"), mask("2 5"), of("1")),
        {},
        "axis 'quantile' is 1 in levels (1,) but 3 in forecast.quantiles (2, 5, 1, 3).",
    ),
]


def name_of(function: object) -> str:
    return getattr(function, "forward", function).__qualname__


@pytest.mark.parametrize(
    ("function", "arguments", "options", "message"), REFUSALS, ids=[name_of(each[0]) for each in REFUSALS]
)
def test_what_does_not_fit_is_refused_in_its_own_name(function, arguments, options, message):
    with pytest.raises(ShapeError, match=f"^{re.escape(f'{name_of(function)}: {message}')}"):
        function(*arguments, **options)


def test_no_function_that_checks_is_missing_here():
    assert sorted(name_of(each[0]) for each in REFUSALS) == sorted(each.__qualname__ for _, each in shaped_functions())
