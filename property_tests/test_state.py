"""States are values: choosing, repeating, resetting and rolling back rows commutes with running on."""

import copy
import tempfile
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from mamba2.model.block import BlockState, Mamba2Block
from mamba2.model.state import choose_rows, load_state, save_state, select_rows
from mamba2.verify.checks import require_close
from mamba2.verify.strategies import BlockCase, block_cases

cases = block_cases(Mamba2Block)


def require_same(actual: BlockState, expected: BlockState) -> None:
    require_close("conv state", actual.conv, expected.conv)
    require_close("ssm state", actual.ssm, expected.ssm)


@given(cases, st.data())
def test_rows_selected_before_a_run_are_the_rows_selected_after_it(case: BlockCase, data: st.DataObject) -> None:
    batch = case.sizes.batch
    rows = torch.tensor(data.draw(st.lists(st.integers(0, batch - 1), max_size=5)) if batch else [], dtype=torch.long)
    y, last = case.block(case.u, case.state)
    y_selected, last_selected = case.block(case.u[rows], select_rows(case.state, rows))

    require_close("y", y_selected, y[rows])
    require_same(last_selected, select_rows(last, rows))


@given(cases, st.data())
def test_rows_rolled_back_run_as_if_they_had_never_gone_on(case: BlockCase, data: st.DataObject) -> None:
    batch = case.sizes.batch
    back = torch.tensor(data.draw(st.lists(st.booleans(), min_size=batch, max_size=batch)), dtype=torch.bool)
    _, ahead = case.block(case.u, case.state)
    mixed = choose_rows(back, case.state, ahead)
    y, _ = case.block(case.u, mixed)

    require_close("y of rows rolled back", y[back], case.block(case.u, case.state)[0][back])
    require_close("y of the others", y[~back], case.block(case.u, ahead)[0][~back])


@given(cases)
def test_a_state_copied_or_saved_and_loaded_is_the_same_bit_for_bit(case: BlockCase) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_state(Path(folder) / "state", (case.state, case.state))
        loaded = load_state(Path(folder) / "state")

    for same in (*loaded, copy.deepcopy(case.state)):
        assert torch.equal(same.conv, case.state.conv)
        assert torch.equal(same.ssm, case.state.ssm)
