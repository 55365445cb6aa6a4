"""Models as folders: written whole or not at all, and weights that fit or whose every fault is named."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mamba2.errors import CheckpointError

Weights = Mapping[str, Float[Tensor, "..."]]
"""Parameters by name, as in a state dict."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder aside, which takes the name of `folder` once all is written; one of that name is replaced.

    Raises:
        CheckpointError: something cannot be written; then `folder` is what it was.
    """
    place = folder.resolve()
    aside = place.with_name(f".{place.name}.unfinished")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for path in aside.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch.save tells of a full disk by a RuntimeError
        raise CheckpointError(f"{folder}: the checkpoint cannot be written: {error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_safetensors(path: Path, weights: Weights, metadata: dict[str, str]) -> None:
    """Writes weights from any device; the folder around them has to be whole, see `whole_folder`."""
    save_file({name: each.detach().cpu().contiguous() for name, each in weights.items()}, path, metadata=metadata)


def read_safetensors(path: Path) -> tuple[dict[str, Float[Tensor, "..."]], dict[str, str]]:
    """The weights of a file and its metadata.

    Raises:
        OSError: the file cannot be read.
        SafetensorError: it is damaged or no such file.
    """
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def misfits(wanted: Mapping[str, torch.Size], got: Weights) -> list[str]:
    """Every weight that is missing, unknown or of another shape, and every one that holds no fractions."""
    faults = [f"{name} is missing" for name in wanted if name not in got]
    faults += [f"{name} is unknown" for name in got if name not in wanted]
    both = {name: (shape, got[name]) for name, shape in wanted.items() if name in got}
    faults += [
        f"{n} is {tuple(each.shape)}, not {tuple(shape)}" for n, (shape, each) in both.items() if each.shape != shape
    ]
    faults += [
        f"{n} is {each.dtype}, not floating-point" for n, (_, each) in both.items() if not each.is_floating_point()
    ]
    return faults


def require_fit(where: str, faults: list[str]) -> None:
    """Names all faults of the weights at once.

    Raises:
        CheckpointError: there is one.
    """
    if faults:
        raise CheckpointError(f"{where}: the weights do not fit the config: {'; '.join(faults)}.")
