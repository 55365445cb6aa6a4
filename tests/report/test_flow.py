"""The shape flow: its axes are those of the code, its sizes those of the config, and a fault is found in it."""

from typing import Any, get_args, get_type_hints

import pytest
from jaxtyping import AbstractArray

from mamba2.config import ModelConfig, RunConfig
from mamba2.model.backbone import Backbone
from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.forecaster import Forecast, Forecaster
from mamba2.ops import conv, norm, scan
from mamba2.report.faults import AxisRow, ShapeFault
from mamba2.report.flow import Arrow, Axis, Box, Flow, mark
from mamba2.report.model_flow import forecaster_flow

FUNCTIONS = {
    "rms_norm": norm.rms_norm,
    "causal_conv1d": conv.causal_conv1d,
    "prepare_scan_input": scan.prepare_scan_input,
    "scan_chunked": scan.scan_chunked,
    "gated_rms_norm": norm.gated_rms_norm,
}

FIRST_INPUT = {"embed": (Forecaster, "features"), "in_proj": (Mamba2Block, "u")}


def boxes(flow: Flow) -> list[Box]:
    return [box for group in flow.groups for box in group.boxes]


def axes(arrows: list[Arrow]) -> dict[str, str]:
    return {arrow.name: " ".join(axis.name for axis in arrow.axes) for arrow in arrows}


def annotated(function: Any) -> dict[str, str]:
    """The axes of every tensor argument; one that may be left out, too."""
    found = {}
    for name, hint in get_type_hints(function).items():
        arrays = [
            part for part in (hint, *get_args(hint)) if isinstance(part, type) and issubclass(part, AbstractArray)
        ]
        if arrays and name != "return":
            found[name] = arrays[0].dim_str.strip()
    return found


@pytest.fixture
def flow() -> Flow:
    """That of the reference model."""
    return forecaster_flow(RunConfig(), 32)


def test_every_box_of_the_maths_takes_the_tensors_of_its_function(flow: Flow) -> None:
    drawn = {box.name: axes(list(box.arrows)) for box in boxes(flow) if box.name in FUNCTIONS}
    stated = {name: annotated(function) for name, function in FUNCTIONS.items()}
    for name in ("mask", "lengths"):  # only of rows with pads
        for tensors in stated.values():
            tensors.pop(name, None)

    assert drawn == stated


def test_the_other_axes_are_those_of_the_modules(flow: Flow) -> None:
    for box in boxes(flow):
        if box.name in FIRST_INPUT:
            module, name = FIRST_INPUT[box.name]
            assert axes(list(box.arrows)) == {name: annotated(module.forward)[name]}

    assert axes(list(flow.results)) == annotated(Forecast)
    assert annotated(Backbone.forward)["x"] == "batch time d_model"


def test_the_state_is_that_of_a_block(flow: Flow) -> None:
    states = {arrow.source: arrow for box in boxes(flow) for arrow in box.arrows if arrow.source.startswith("state.")}
    drawn = {source.removeprefix("state."): axes([arrow]) for source, arrow in states.items()}

    assert {name: next(iter(each.values())) for name, each in drawn.items()} == annotated(BlockState)


def test_the_sizes_are_those_of_the_config(flow: Flow) -> None:
    sizes = {axis.name: axis.size for box in boxes(flow) for arrow in box.arrows for axis in arrow.axes}

    assert sizes == {
        "batch": 32,
        "time": 60,
        "feature": 9,
        "d_model": 256,
        "conv": 544,
        "width": 4,
        "width-1": 3,
        "head": 8,
        "channel": 64,
        "group": 1,
        "state": 16,
        "d_inner": 512,
    }


def test_options_change_what_is_drawn() -> None:
    plain = forecaster_flow(RunConfig(model=ModelConfig(norm="none", conv_bias=False, D="none")), 1)
    conv_box, scan_box, gate = (
        next(b for b in boxes(plain) if b.name == n) for n in ("causal_conv1d", "scan_chunked", "gate")
    )

    assert [arrow.name for arrow in conv_box.arrows] == ["x", "weight", "past"]
    assert scan_box.does == "S ← exp(log_decay) S + x ⊗ B, y = S C"
    assert gate.does == "y · silu(gate)"


def test_a_fault_marks_its_function_argument_and_axis(flow: Flow) -> None:
    fault = ShapeFault("prepare_scan_input", "B", "…", (AxisRow("batch", "32 (from x)", "-", True),), "")
    marked = mark(flow, fault)
    red = [(box.name, arrow.name, arrow.axes[0]) for box in boxes(marked) for arrow in box.arrows if arrow.is_wrong]

    assert [box.name for box in boxes(marked) if box.fault] == ["prepare_scan_input"]
    assert red == [("prepare_scan_input", "B", Axis("batch", 32, got="-"))]


@pytest.mark.parametrize(
    ("function", "box"),
    [("scan_step", "scan_chunked"), ("causal_conv1d_step", "causal_conv1d"), ("rms_norm", "rms_norm")],
)
def test_one_box_stands_for_both_paths(flow: Flow, function: str, box: str) -> None:
    marked = mark(flow, ShapeFault(function, "x", "…", (), ""))

    assert [each.name for each in boxes(marked) if each.fault] == [box]


def test_a_method_marks_its_module_and_the_state_where_it_enters(flow: Flow) -> None:
    marked = mark(flow, ShapeFault("Mamba2Block.forward", "state.ssm", "…", (), ""))
    red = [(box.name, arrow.name) for box in boxes(marked) for arrow in box.arrows if arrow.is_wrong]

    assert [group.name for group in marked.groups if group.fault] == ["Mamba2Block"]
    assert red == [("scan_chunked", "state")]


def test_without_an_argument_no_arrow_is_red(flow: Flow) -> None:
    marked = mark(flow, ShapeFault("Mamba2Block._run", "", "…", (), ""))

    assert not any(arrow.is_wrong for box in boxes(marked) for arrow in box.arrows)


def test_a_function_that_is_not_drawn_changes_nothing(flow: Flow) -> None:
    assert mark(flow, ShapeFault("load_bars", "x", "…", (), "")) == flow
