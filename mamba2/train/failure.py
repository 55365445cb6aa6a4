"""A step that found something not finite, kept so that it can be taken again and looked into."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from torch import Tensor, nn

from mamba2.config import RunConfig
from mamba2.data.windows import Windows
from mamba2.errors import CheckpointError
from mamba2.model.block import BlockState
from mamba2.model.files import read_safetensors, whole_folder, write_checksums, write_safetensors
from mamba2.model.forecaster import Forecaster
from mamba2.train.checkpoint import FORMAT, Progress, load_model
from mamba2.train.distributed import Found, Processes, gathered
from mamba2.train.evaluate import TensorBatch, to_tensors
from mamba2.train.plan import Turn, state_before
from mamba2.train.step import compute_gradients, find_fault

FOLDER = "failed-batch"


class Replay(NamedTuple):
    """A failed step, taken again."""

    failed: str
    """What was found when it failed."""
    again: str
    """What is found now; empty if all is finite."""
    first: str
    """The first module whose output is not finite, or what of the input is not; empty if all is."""
    loss: float


def save_failed(
    out: Path,
    model: Forecaster,
    config: RunConfig,
    windows: Windows,
    turn: Turn,
    done: Progress,
    found: Found,
    processes: Processes,
) -> str:
    """Writes weights, batch and state of the step that failed to `out/failed-batch`; returns what happened, as a line.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    carried = gathered(done.state, processes)
    failed = f"step {done.step + 1}: {found.fault}"
    if processes.is_first:
        batch = to_tensors(windows.gather(turn.windows), next(model.parameters()).device)
        states = {
            f"{index}.{name}": each
            for index, block in enumerate(state_before(model, carried, turn))
            for name, each in zip(BlockState._fields, block, strict=True)
        }
        with whole_folder(out / FOLDER) as aside:
            write_safetensors(aside / "model.safetensors", model.state_dict(), {"format": FORMAT})
            write_safetensors(aside / "batch.safetensors", batch._asdict() | states, {"format": FORMAT})
            (aside / "config.toml").write_text(config.to_toml(), encoding="utf-8")
            (aside / "failure.json").write_text(json.dumps({"failed": failed}) + "\n", encoding="utf-8")
            write_checksums(aside)
    return (
        f"training: {failed}. The weights are those before this step: look into it with mamba2 replay {out / FOLDER}, "
        "then check the data, or start again with a lower learning_rate."
    )


def replay(folder: Path) -> Replay:
    """Takes a failed step again, and finds the first module whose output is not finite.

    Raises:
        CheckpointError: the folder is not what `save_failed` wrote.
    """
    if not (folder / "failure.json").is_file():
        raise CheckpointError(
            f"{folder}: must be what a step that was not finite left; it holds no failure.json. Name RUN/failed-batch."
        )
    model, config = load_model(folder)
    try:
        tensors, _ = read_safetensors(folder / "batch.safetensors")
        failed = json.loads((folder / "failure.json").read_text(encoding="utf-8"))["failed"]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{folder}: not a failed batch: {error}") from error
    batch = TensorBatch(*(tensors[name] for name in TensorBatch._fields))
    state = tuple(
        BlockState(*(tensors[f"{index}.{name}"] for name in BlockState._fields)) for index in range(config.model.layers)
    )
    culprits = [f"the batch's {name}" for name, each in batch._asdict().items() if not each.isfinite().all()]
    for name, module in model.named_modules():
        module.register_forward_hook(_note(name or "the forecaster", culprits))
    settings = config.train
    found = compute_gradients(model, batch, settings.max_grad_norm, state=state, precision=settings.precision)
    return Replay(failed, find_fault(model, found), culprits[0] if culprits else "", found.loss.item())


def _note(name: str, culprits: list[str]) -> Any:
    """A hook that notes the name of a module when its output is not finite; inner modules come before outer ones."""

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if not all(each.isfinite().all() for each in _tensors(output)):
            culprits.append(name)

    return hook


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [each for item in value for each in _tensors(item)] if isinstance(value, tuple) else []
