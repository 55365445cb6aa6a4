"""The forecaster or a block as a shape flow, from nothing but sizes: they are there before any tensor is made."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mamba2.config import RunConfig
from mamba2.report.flow import Arrow, Axis, Box, Flow, Group

_STREAM = "batch time d_model"
_PARAMETER = "parameter"


class _Options(NamedTuple):
    """What a block's boxes depend on beside the sizes."""

    conv_bias: bool
    D: str
    norm: str


class _Sizes(NamedTuple):
    """How long each axis is."""

    of: dict[str, int]

    def arrow(self, name: str, axes: str, source: str = "") -> Arrow:
        return Arrow(name, [Axis(axis, self.of[axis]) for axis in axes.split()], source)


def forecaster_flow(config: RunConfig, batch: int) -> Flow:
    """The full pass over `batch` windows; arguments are named and ordered as in the functions of `mamba2.ops`."""
    sizes = _Sizes(_sizes(config, batch))
    arrow, layers = sizes.arrow, config.model.layers
    options = _Options(config.model.conv_bias, config.model.D, config.model.norm)
    norm = Box("rms_norm", [arrow("x", _STREAM), arrow("weight", "d_model", _PARAMETER)], "weight · x / rms(x)")
    return Flow(
        groups=[
            Group("Forecaster", [Box("embed", [arrow("features", "batch time feature")], "linear")]),
            Group("Backbone", [norm], f"x ← x + block(rms_norm(x)), {layers} times"),
            Group("Mamba2Block", list(_block(options, sizes)), f"one of {layers}, each with a state of its own"),
            Group("Backbone", [norm], "once more at the end"),
            Group("Forecaster", [Box("head", [arrow("x", _STREAM)], "linear; q[k+1] = q[k] + softplus(head)")]),
        ],
        results=[arrow("mean", "batch time target"), arrow("quantiles", "batch time target quantile")],
        caption="The full pass. In a step time is 1, and causal_conv1d_step and scan_step stand in two of the boxes; "
        "all else is the same code. Where a block runs in its fast form, its boxes are one pass.",
    )


def block_flow(case: Mapping[str, Any]) -> Flow:
    """One block at the sizes and options of a `verify.Case`."""
    heads, groups, states = case["head"] * case["channel"], case["group"], case["state"]
    sizes = {name: case[name] for name in ("batch", "time", "head", "channel", "group", "state", "width")}
    sizes |= {"d_inner": heads, "d_model": heads // case["expand"], "conv": heads + 2 * groups * states}
    sizes["width-1"] = case["width"] - 1
    options = _Options(case["conv_bias"], case["D"], case["norm"])
    block = _Sizes(sizes)
    return Flow([Group("Mamba2Block", list(_block(options, block)))], [block.arrow("y", _STREAM)])


def _block(config: _Options, sizes: _Sizes) -> Iterator[Box]:
    arrow = sizes.arrow
    bias = [arrow("bias", "conv", _PARAMETER)] if config.conv_bias else []
    yield Box("in_proj", [arrow("u", _STREAM)], "linear; split into gate, xBC and dt")
    yield Box(
        "causal_conv1d",
        [
            arrow("x", "batch time conv", "xBC"),
            arrow("weight", "conv width", _PARAMETER),
            *bias,
            arrow("past", "batch width-1 conv", "state.conv"),
        ],
        "then silu; split into x, B and C",
        also="causal_conv1d_step",
    )
    yield Box(
        "prepare_scan_input",
        [
            arrow("x", "batch time head channel"),
            arrow("dt", "batch time head", "from in_proj"),
            arrow("A_log", "head", _PARAMETER),
            arrow("B", "batch time group state"),
            arrow("C", "batch time group state"),
            arrow("dt_bias", "head", _PARAMETER),
        ],
        "dt ← clamp(softplus(dt + dt_bias)), x ← dt·x, log_decay = -dt·exp(A_log)",
    )
    yield Box(
        "scan_chunked",
        [
            arrow("x", "batch time head channel"),
            arrow("log_decay", "batch time head"),
            arrow("B", "batch time group state"),
            arrow("C", "batch time group state"),
            arrow("state", "batch head channel state", "state.ssm"),
        ],
        "S ← exp(log_decay) S + x ⊗ B, y = S C" + ("" if config.D == "none" else "; then y + D·x"),
        also="scan_step",
    )
    yield _gate(config, sizes)
    yield Box("out_proj", [arrow("y", "batch time d_inner")], "linear")


def _gate(config: _Options, sizes: _Sizes) -> Box:
    arrow = sizes.arrow
    arrows = [arrow("y", "batch time d_inner"), arrow("gate", "batch time d_inner", "from in_proj")]
    if config.norm == "none":
        return Box("gate", arrows, "y · silu(gate)")
    does = "norm(y) · silu(gate)" if config.norm == "before gate" else "norm(y · silu(gate))"
    return Box("gated_rms_norm", [*arrows, arrow("weight", "d_inner", _PARAMETER)], does)


def _sizes(config: RunConfig, batch: int) -> dict[str, int]:
    model = config.model
    return {
        "batch": batch,
        "time": config.data.window,
        "feature": len(config.data.features),
        "target": len(config.data.targets),
        "quantile": len(model.quantiles),
        "d_model": model.d_model,
        "d_inner": model.d_inner,
        "conv": model.d_xBC,
        "width": model.d_conv,
        "width-1": model.d_conv - 1,
        "head": model.n_heads,
        "channel": model.headdim,
        "group": model.n_groups,
        "state": model.d_state,
    }
