"""A shape error's text is read back into its parts."""

import pytest
import torch

from mamba2.errors import ShapeError
from mamba2.ops.scan import scan_sequential
from mamba2.report.faults import AxisRow, ShapeFault, read_fault

OLD_FAULT = """\
ShapeError: prepare_scan_input: B must have 4 axes (batch time group state); got 3: (60, 1, 8).
  B: Float (batch time group state)
    axis   expected     got
    batch  32 (from x)  - <--
    time   60 (from x)  60
    group  any          1
    state  any          8
  hint: the batch is missing: expand B over it."""


def test_the_old_fault_is_read_whole() -> None:
    assert read_fault(OLD_FAULT) == ShapeFault(
        function="prepare_scan_input",
        argument="B",
        sentence="B must have 4 axes (batch time group state); got 3: (60, 1, 8).",
        rows=(
            AxisRow("batch", "32 (from x)", "-", True),
            AxisRow("time", "60 (from x)", "60", False),
            AxisRow("group", "any", "1", False),
            AxisRow("state", "any", "8", False),
        ),
        hint="the batch is missing: expand B over it.",
    )


def test_what_the_checks_raise_today_is_read() -> None:
    x, log_decay, B = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4), torch.zeros(2, 3, 1, 6)
    with pytest.raises(ShapeError) as raised:
        scan_sequential(x, log_decay, B, B[..., :5], torch.zeros(2, 4, 5, 6))
    fault = read_fault(str(raised.value))

    assert fault is not None
    assert (fault.function, fault.argument) == ("scan_sequential", "C")
    assert [row for row in fault.rows if row.is_wrong] == [AxisRow("state", "6 (from B)", "5", True)]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("Mamba2Block: axis 'd_model' is 3 in u (1, 2, 3) but 4 in the model.", ("Mamba2Block", "u")),
        ("Mamba2Block.forward: state.conv must be a Tensor (a b); got int.", ("Mamba2Block.forward", "state.conv")),
        ("Backbone: axis 'layer' is 1 in state but 2 in the model.", ("Backbone", "state")),
    ],
)
def test_errors_without_a_table_name_function_and_argument(text: str, where: tuple[str, str]) -> None:
    fault = read_fault(text)

    assert fault is not None
    assert (fault.function, fault.argument) == where
    assert (fault.rows, fault.hint) == ((), "")


def test_other_texts_are_none() -> None:
    assert read_fault("it broke") is None
