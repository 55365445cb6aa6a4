"""Folders of language models: ours, transformers' and mamba_ssm's.

transformers   config.json, and model.safetensors or pytorch_model.bin, whole or in shards with an index
mamba_ssm      config.json, and pytorch_model.bin
mamba2         config.toml with the section [model], and model.safetensors
"""

import json
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from mamba2.config import RunConfig
from mamba2.errors import CheckpointError, ConfigError
from mamba2.model.files import read_safetensors, require_fit, whole_folder, write_safetensors
from mamba2.model.interop.layout_mamba_ssm import from_mamba_ssm, to_mamba_ssm
from mamba2.model.interop.layout_transformers import from_transformers, to_transformers
from mamba2.model.interop.names import fill
from mamba2.model.language import LanguageModel

FORMAT = "language-model-1"
"""Of our folder; a reader refuses any other."""

_TENSORS, _PICKLE = "model.safetensors", "pytorch_model.bin"


def load_language_model(folder: Path) -> LanguageModel:
    """The model of a folder of any of the three kinds, told apart by their config.

    Raises:
        CheckpointError: the folder is of no known kind, or a part is missing, damaged or does not fit the others.
        ConfigError: the config has settings that no `ModelConfig` can hold; all are named.
    """
    try:
        if (folder / "config.toml").exists():
            return _read_ours(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict) or not {"model_type", "ssm_cfg"} & config.keys():
            raise CheckpointError("config.json must name a model_type (transformers) or an ssm_cfg (mamba_ssm).")
        read = from_transformers if "model_type" in config else from_mamba_ssm
        return read(config, _read_weights(folder))
    except (CheckpointError, ConfigError) as error:
        raise type(error)(f"{folder}: {error}") from error
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder}: must be a language model of transformers, mamba_ssm or mamba2: {error}"
        ) from error


def save_language_model(folder: Path, model: LanguageModel, *, to: str) -> None:
    """Writes a folder of the kind `to`: "transformers", "mamba_ssm" or "mamba2"; one of that name is replaced.

    Raises:
        CheckpointError: the folder cannot be written.
        ConfigError: there is no such kind, or it has no word for a setting of the model.
    """
    if to not in _WRITERS:
        raise ConfigError(f"save_language_model: to must be one of {', '.join(_WRITERS)}; got {to!r}.")
    _WRITERS[to](folder, model)


def _write_transformers(folder: Path, model: LanguageModel) -> None:
    config, weights = to_transformers(model)
    with whole_folder(folder) as aside:
        _write_json(aside, config)
        write_safetensors(aside / _TENSORS, weights, {"format": "pt"})


def _write_mamba_ssm(folder: Path, model: LanguageModel) -> None:
    config, weights = to_mamba_ssm(model)
    with whole_folder(folder) as aside:
        _write_json(aside, config)
        torch.save({name: each.cpu() for name, each in weights.items()}, aside / _PICKLE)


def _write_ours(folder: Path, model: LanguageModel) -> None:
    section = RunConfig(model=model.config).to_toml().partition("\n[data]")[0]
    with whole_folder(folder) as aside:
        (aside / "config.toml").write_text(section, encoding="utf-8")
        write_safetensors(aside / _TENSORS, model.state_dict(), {"format": FORMAT})


_WRITERS: dict[str, Callable[[Path, LanguageModel], None]] = {
    "transformers": _write_transformers,
    "mamba_ssm": _write_mamba_ssm,
    "mamba2": _write_ours,
}


def _read_ours(folder: Path) -> LanguageModel:
    """Vocabulary and tie are what the weights say."""
    config = RunConfig.load(folder / "config.toml").model
    weights, metadata = read_safetensors(folder / _TENSORS)
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"the format must be {FORMAT}; got {metadata.get('format')}. A forecaster has no vocabulary to convert."
        )
    require_fit("mamba2", [] if "embedding.weight" in weights else ["embedding.weight is missing"])
    with torch.device("meta"):
        vocabulary = weights["embedding.weight"].shape[0]
        model = LanguageModel(config, vocabulary=vocabulary, tied="head.weight" not in weights)
    return fill("mamba2", model, {name: name for name in model.state_dict()}, weights)


def _write_json(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _read_weights(folder: Path) -> dict[str, Float[Tensor, "..."]]:
    """All weights of a foreign folder, from its one file or from its shards."""
    for name in (_TENSORS, _PICKLE):
        if (folder / name).exists():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            parts = map(_read_file, _shards(index))
            return {entry: each for part in parts for entry, each in part.items()}
    raise CheckpointError(f"there must be {_TENSORS} or {_PICKLE}, or an index of shards of either.")


def _shards(index: Path) -> list[Path]:
    """The files of an index, which lie beside it."""
    content = json.loads(index.read_text(encoding="utf-8"))
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict):
        raise CheckpointError(f"{index.name} must have a weight_map; got none.")
    return [index.parent / Path(str(shard)).name for shard in sorted(set(shards.values()))]


def _read_file(path: Path) -> dict[str, Float[Tensor, "..."]]:
    if path.suffix == ".safetensors":
        return read_safetensors(path)[0]
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (EOFError, RuntimeError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path.name} cannot be read as weights: {reason}") from error
    if not isinstance(weights, dict) or not all(isinstance(each, Tensor) for each in weights.values()):
        raise CheckpointError(f"{path.name} must hold a state dict; got something else.")
    return weights
