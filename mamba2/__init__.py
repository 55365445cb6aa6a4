"""Mamba-2 in PyTorch, one function on every path; public names are loaded on first use."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Mamba2Error": "errors",
    "ShapeError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "CheckpointError": "errors",
    "TrainingError": "errors",
    "ModelConfig": "config",
    "DataConfig": "config",
    "TrainConfig": "config",
    "RunConfig": "config",
    "shaped": "shapes",
    "ScanInput": "ops.scan",
    "prepare_scan_input": "ops.scan",
    "scan_sequential": "ops.scan",
    "scan_chunked": "ops.scan",
    "scan_step": "ops.scan",
    "causal_conv1d": "ops.conv",
    "causal_conv1d_step": "ops.conv",
    "rms_norm": "ops.norm",
    "gated_rms_norm": "ops.norm",
    "Mamba2Block": "model.block",
    "BlockState": "model.block",
    "Backbone": "model.backbone",
    "Forecaster": "model.forecaster",
    "Forecast": "model.forecaster",
    "LanguageModel": "model.language",
    "run_packed": "model.packing",
    "select_rows": "model.state",
    "choose_rows": "model.state",
    "save_state": "model.state",
    "load_state": "model.state",
    "prepare": "data.dataset",
    "fit": "train.loop",
    "fit_files": "train.run",
    "load_model": "train.checkpoint",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mamba2' has no attribute {name!r}")
    return getattr(import_module(f"mamba2.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
