"""Trains on made-up bars whose best forecast is known, and judges the result next to it; less than a minute.

The returns are r[t+1] = 0.3·r[t] + noise: no forecast can leave less than 0.91 of the zero forecast's squared error.

    python examples/train_on_synthetic_bars.py
"""

from pathlib import Path
from tempfile import mkdtemp

from mamba2 import DataConfig, ModelConfig, RunConfig, TrainConfig, fit_files
from mamba2.data.planted import write_planted
from mamba2.evaluation.run import evaluate_run
from mamba2.train.loop import Epoch

CONFIG = RunConfig(
    model=ModelConfig(d_model=8, layers=1, d_state=4, headdim=8, chunk=16),
    data=DataConfig(contract="6EH4", window=30),
    train=TrainConfig(epochs=3, batch=8, learning_rate=2e-2),
)


def main() -> float:
    """The model's squared error on the days it did not see, that of the zero forecast being 1."""
    folder = Path(mkdtemp(prefix="mamba2-"))
    file = write_planted(folder / "planted.dbn.zst", "ar1", bars=3000)
    for event in fit_files([file], CONFIG, folder / "run"):
        if isinstance(event, Epoch):
            print(f"epoch {event.epoch}: loss {event.train_loss:.3f}, on later days {event.validation_loss:.3f}")

    found = evaluate_run(folder / "run", [], device=None).values["targets"][0]
    print(f"\n{'forecast':<14}squared error (zero = 1, best possible 0.91)")
    for score in found["scores"]:
        print(f"{score['name']:<14}{score['mse_ratio']['value']:.3f}")
    print(f"The model is {found['verdict']}.")
    return found["scores"][0]["mse_ratio"]["value"]


if __name__ == "__main__":
    ratio = main()
