"""`mamba2 convert` as typed: every kind of folder to every kind, and one line where that cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mamba2.config import ModelConfig
from mamba2.model.interop import load_language_model, save_language_model
from mamba2.model.language import LanguageModel

Command = Callable[..., Any]
KINDS = ["transformers", "mamba_ssm", "mamba2"]


@pytest.fixture
def small() -> LanguageModel:
    """A language model of one block."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=8, headdim=4, layers=1, d_state=3)
    return LanguageModel(config, vocabulary=11, tied=True)


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_becomes_any_kind(kind: str, to: str, small: LanguageModel, tmp_path: Path, command: Command) -> None:
    save_language_model(tmp_path / "src", small, to=kind)
    outcome = command("convert", tmp_path / "src", tmp_path / "dst", "--to", to)
    weights = load_language_model(tmp_path / "dst").state_dict()

    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == (f"{tmp_path / 'dst'} ({to}): 1 layers, vocabulary 11, 706 parameters, tied head\n")
    assert all(torch.equal(each, weights[name]) for name, each in small.state_dict().items())


def test_an_empty_folder_is_filled(small: LanguageModel, tmp_path: Path, command: Command) -> None:
    save_language_model(tmp_path / "src", small, to="mamba2")
    (tmp_path / "dst").mkdir()

    assert command("convert", tmp_path / "src", tmp_path / "dst", "--to", "mamba_ssm").status == 0
    assert sorted(path.name for path in (tmp_path / "dst").iterdir()) == ["config.json", "pytorch_model.bin"]


@pytest.mark.parametrize("taken", ["folder", "file"])
def test_what_is_there_is_not_written_over(taken: str, small: LanguageModel, tmp_path: Path, command: Command) -> None:
    save_language_model(tmp_path / "src", small, to="mamba2")
    target = tmp_path / "dst"
    if taken == "folder":
        target.mkdir()
        target = target / "kept"
    target.write_text("kept")
    outcome = command("convert", tmp_path / "src", tmp_path / "dst", "--to", "transformers")

    assert outcome.status == 1
    assert outcome.err == (
        f"mamba2: {tmp_path / 'dst'}: must be a new or empty folder, a model is never written over. "
        "Choose another DST.\n"
    )
    assert target.read_text() == "kept"


def test_a_setting_that_the_other_library_lacks_leaves_nothing(tmp_path: Path, command: Command) -> None:
    config = ModelConfig(d_model=8, headdim=4, layers=1, D="channel")
    save_language_model(tmp_path / "src", LanguageModel(config, vocabulary=11, tied=True), to="mamba2")
    outcome = command("convert", tmp_path / "src", tmp_path / "dst", "--to", "transformers")

    assert outcome.status == 1
    assert outcome.err == (
        "mamba2: to_transformers: each setting must be one that the other library has; got D = 'channel', not 'head'.\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_a_source_that_is_no_model_is_one_line(tmp_path: Path, command: Command) -> None:
    outcome = command("convert", tmp_path / "none", tmp_path / "dst", "--to", "mamba2")

    assert outcome.status == 1
    assert outcome.err.startswith(f"mamba2: {tmp_path / 'none'}: must be a language model of transformers, ")
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_layout_is_wrong_usage(tmp_path: Path, command: Command) -> None:
    assert command("convert", tmp_path, tmp_path / "dst", "--to", "onnx").status == 2


def test_convert_explains_itself_with_an_example(command: Command) -> None:
    outcome = command("convert", "--help")

    assert outcome.status == 0
    assert "Example: mamba2 convert" in outcome.out
