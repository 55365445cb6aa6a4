"""Models as folders: written whole or not at all, every byte checked; weights that fit or whose faults are named."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mamba2.disk import reach_disk, sha256
from mamba2.errors import CheckpointError

Weights = Mapping[str, Float[Tensor, "..."]]
"""Parameters by name, as in a state dict."""

CHECKSUMS = "checksums"
"""The file of a folder that lists the SHA-256 of all others, as `sha256sum -c` reads it."""

_SUFFIXES = (".safetensors", ".pt", ".toml")
"""Of files that are read; others, such as notes, may be added to a folder."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder aside, which takes the name of `folder` once all is written; one of that name is replaced.

    Whenever the process is killed, `existing(folder)` is the old folder or the new one, each of them whole.

    Raises:
        CheckpointError: something cannot be written; then `folder` is what it was.
    """
    place = folder.resolve()
    aside, replaced = place.with_name(f".{place.name}.unfinished"), _replaced(place)
    try:
        if existing(place) == replaced:  # killed between the two renames below
            replaced.rename(place)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        yield aside
        for path in (*aside.iterdir(), aside):
            reach_disk(path)
        if place.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            place.rename(replaced)
        aside.rename(place)
        reach_disk(place.parent)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch.save tells of a full disk by a RuntimeError
        if not place.exists() and replaced.exists():
            replaced.rename(place)
        raise CheckpointError(f"{folder}: the checkpoint cannot be written: {error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if place.exists():
            shutil.rmtree(replaced, ignore_errors=True)


def existing(folder: Path) -> Path:
    """The folder, or where `whole_folder` left the old one if it was killed in the moment of replacing it."""
    replaced = _replaced(folder)
    return replaced if replaced.is_dir() and not folder.exists() else folder


def _replaced(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.replaced")


def write_whole(path: Path, text: str) -> None:
    """Writes a text file aside and renames it: its readers see the old text or the new one.

    Raises:
        CheckpointError: the file cannot be written; then it is what it was.
    """
    aside = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        reach_disk(aside)
        aside.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error}.") from error


def write_checksums(folder: Path) -> None:
    """Lists the SHA-256 of every file in the folder in its file `checksums`."""
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.name != CHECKSUMS]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def require_unchanged(folder: Path) -> None:
    """The folder holds the files that `write_checksums` listed, byte for byte, and none like them that it did not.

    Raises:
        CheckpointError: files are missing or changed, all of them named.
        OSError: a file cannot be read.
    """
    *lines, rest = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace").split("\n")
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {path.name for path in folder.iterdir()} - {CHECKSUMS}
    faults = [f"{name} is missing" for name in listed if name not in there]
    strangers = sorted(name for name in there - set(listed) if Path(name).suffix in _SUFFIXES)
    faults += [f"{name} is not listed in {CHECKSUMS}" for name in strangers]
    faults += [
        f"{name} is not what was written (SHA-256)"
        for name, digest in listed.items()
        if name in there and sha256(folder / name) != digest
    ]
    faults += [f"{CHECKSUMS} is cut short"] if rest else []
    if faults:
        raise CheckpointError(f"{folder}: damaged: {'; '.join(faults)}. Take another checkpoint.")


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
        # What is open is no mapping, so it has to be asked for its keys.
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
