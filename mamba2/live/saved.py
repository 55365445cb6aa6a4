"""An engine's state as a folder, so that a run that stopped goes on with the same numbers.

engine.json          clock, session, volumes, the features' state of each instrument; numbers as they are
model.safetensors    the model's state, a row an instrument, in that order; absent without instruments
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from mamba2.config import RunConfig
from mamba2.data.features import FeatureState
from mamba2.errors import CheckpointError
from mamba2.live.engine import Engine, EngineState, Instrument, Key
from mamba2.model.block import BlockState
from mamba2.model.files import existing, whole_folder
from mamba2.model.forecaster import Forecaster
from mamba2.model.state import load_state, save_state, select_rows

FORMAT = "mamba2-live-1"


def save_engine(folder: Path, engine: Engine) -> None:
    """Writes the engine's state, whole or not at all; one of that name is replaced.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    state = engine.state
    content = {
        "format": FORMAT,
        "model": fingerprint(engine.model, engine.config),
        "interval": engine.interval,
        "clock": state.clock,
        "session": state.session,
        "front": state.front,
        "volumes": [[*key, volume] for key, volume in state.volumes.items()],
        "instruments": [
            {
                "key": key,
                "features": each.features,
                "bars": each.bars,
                "since_start": each.since_start,
                "chosen": each.chosen,
            }
            for key, each in state.instruments.items()
        ],
    }
    with whole_folder(folder) as aside:
        (aside / "engine.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        if state.instruments:
            blocks = zip(*(each.model for each in state.instruments.values()), strict=True)
            together = tuple(BlockState(*map(torch.cat, zip(*block, strict=True))) for block in blocks)
            save_state(aside / "model.safetensors", together)


def load_engine(folder: Path, model: Forecaster, config: RunConfig, *, interval: int) -> Engine:
    """An engine that goes on where the saved one stopped.

    Raises:
        CheckpointError: a part is missing or damaged, or it is the state of another model or interval.
    """
    folder = existing(folder)
    try:
        content = json.loads((folder / "engine.json").read_text(encoding="utf-8"))
        expected = {"format": FORMAT, "model": fingerprint(model, config), "interval": interval}
        for name, value in expected.items():
            if content[name] != value:
                raise CheckpointError(
                    f"{folder}: the state must be of this {name}, {value}; got {content[name]}. Start without it."
                )
        return Engine(model, config, interval=interval, state=_state(folder, content, model))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder}: must be a saved state; {error!r}. Start without it.") from error


def fingerprint(model: Forecaster, config: RunConfig) -> str:
    """Digest of weights and config: the state of another model means nothing to this one."""
    digest = hashlib.sha256(config.to_toml().encode())
    for name, each in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(each.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _state(folder: Path, content: dict[str, Any], model: Forecaster) -> EngineState:
    saved = content["instruments"]
    together = load_state(folder / "model.safetensors", model.levels.device) if saved else ()
    instruments = {
        Key(*each["key"]): Instrument(
            features=FeatureState(*each["features"]),
            model=select_rows(together, torch.tensor([row], device=model.levels.device)),
            bars=each["bars"],
            since_start=each["since_start"],
            chosen=each["chosen"],
        )
        for row, each in enumerate(saved)
    }
    return EngineState(
        clock=content["clock"],
        session=content["session"],
        front=None if content["front"] is None else Key(*content["front"]),
        volumes={Key(symbol, publisher, number): volume for symbol, publisher, number, volume in content["volumes"]},
        instruments=instruments,
    )
