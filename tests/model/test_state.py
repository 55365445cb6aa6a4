"""States saved, loaded, reset and detached."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mamba2.errors import CheckpointError
from mamba2.model.block import BlockState
from mamba2.model.state import choose_rows, detach, load_state, save_state, select_rows

STATE = BlockState(torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[[[3.0]]], [[[4.0]]]]))


def test_selecting_orders_and_repeats_rows() -> None:
    chosen = select_rows((STATE,), torch.tensor([1, 0, 1]))

    assert [each.flatten().tolist() for each in chosen[0]] == [[2.0, 1.0, 2.0], [4.0, 3.0, 4.0]]


def test_resetting_rows_takes_them_from_the_initial_state() -> None:
    zero = BlockState(torch.zeros(2, 1, 1), torch.zeros(2, 1, 1, 1))
    reset = choose_rows(torch.tensor([True, False]), zero, STATE)

    assert [each.flatten().tolist() for each in reset] == [[0.0, 2.0], [0.0, 4.0]]


def test_a_detached_state_has_the_values_but_no_history() -> None:
    live = BlockState(STATE.conv.clone().requires_grad_() * 2, STATE.ssm)
    cut = detach((live,))[0]

    assert cut.conv.flatten().tolist() == [2.0, 4.0]
    assert not cut.conv.requires_grad


def test_a_missing_state_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere: not a saved state: "):
        load_state(tmp_path / "nowhere")


def test_a_damaged_state_is_one_error(tmp_path: Path) -> None:
    save_state(tmp_path / "state", (STATE,))
    (tmp_path / "state").write_bytes((tmp_path / "state").read_bytes()[:-3])

    with pytest.raises(CheckpointError, match=r"state: not a saved state: "):
        load_state(tmp_path / "state")


def test_another_format_is_named(tmp_path: Path) -> None:
    save_file({"0.conv": STATE.conv}, tmp_path / "state", metadata={"format": "mamba2-state-9"})

    with pytest.raises(CheckpointError, match=r"state: the format must be mamba2-state-1; got mamba2-state-9\.$"):
        load_state(tmp_path / "state")


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state: the state cannot be written: "):
        save_state(tmp_path / "missing" / "state", (STATE,))


def test_the_state_of_a_lone_block_is_not_taken_for_two(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^save_state: state must be a tuple of BlockState; got one\."):
        save_state(tmp_path / "state", STATE)
