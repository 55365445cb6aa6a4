"""Plays DBN files bar by bar, as the live feed would bring them: a forecast after each bar of the front contract.

    python examples/stream_a_dbn_file.py [RUN FILE...]

RUN is the --out of `mamba2 train`. Without arguments bars are made here, and the model is untrained.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import torch

from mamba2 import Forecaster, ModelConfig, RunConfig, load_model
from mamba2.data.bars import MINUTE, load_bars, utc
from mamba2.data.synthetic import write_example
from mamba2.live.engine import Engine, Prediction
from mamba2.live.replay import replay
from mamba2.train.runs import find_checkpoint


def choose() -> tuple[Forecaster, RunConfig, list[Path]]:
    """The model and files that were named, else a small model and four days of made-up bars."""
    if len(sys.argv) > 1:
        return *load_model(find_checkpoint(Path(sys.argv[1]))), list(map(Path, sys.argv[2:]))
    torch.manual_seed(0)
    config = RunConfig(model=ModelConfig(d_model=16, layers=2, headdim=16, d_state=8))
    model = Forecaster(config.model, features=len(config.data.features), targets=len(config.data.targets))
    return model, config, write_example(Path(mkdtemp(prefix="mamba2-")))


def main(most: int = 1500) -> list[Prediction]:
    """The first forecasts, one line for each segment's first and for every 500th bar."""
    model, config, files = choose()
    market = load_bars(files)
    engine = Engine(model, config, interval=market.series[0].interval if market.series else MINUTE)
    seen = []
    for prediction in replay(engine, market):
        seen.append(prediction)
        if prediction.since_start == 0 or len(seen) % 500 == 0:
            low, *_, high = prediction.quantiles[0] * prediction.volatility * 1e4
            place = "a segment begins" if prediction.since_start == 0 else f"bar {prediction.since_start} of it"
            known = f"{prediction.bar.key.symbol} known at {utc(prediction.available_at)}"
            print(f"{known}: next return {low:+.2f} to {high:+.2f} basis points, {place}")
        if len(seen) == most:
            break
    return seen


if __name__ == "__main__":
    seen = main()
