"""The smoke test: files of bars to a trained, validated and saved model, with a checklist and a report.

Its checklist is the one of the failed run that this project began with, and so is its configuration.
"""

import importlib
import json
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mamba2 import __version__
from mamba2.config import DataConfig, RunConfig, TrainConfig
from mamba2.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from mamba2.evaluation.stretch import Stretch
    from mamba2.train.loop import Step

CHECKS = (
    "imports",
    "device",
    "data",
    "features",
    "split",
    "model",
    "first batch",
    "finite loss",
    "gradients",
    "weights updated",
    "validation loss",
    "checkpoints",
)
"""In the order in which they are made; the first that fails is the last."""

_IMPORTS = ("torch", "numpy", "jaxtyping", "beartype", "databento-dbn", "zstandard", "safetensors")


def smoke_config(device: str = "cpu", epochs: int = 3) -> RunConfig:
    """The failed run's configuration: reference model, contract 6EH4, window 60, stride 100."""
    return RunConfig(
        data=DataConfig(contract="6EH4", window=60, stride=100),
        train=TrainConfig(epochs=epochs, warm_up_steps=1, device=device),
    )


class CheckFailedError(Exception):
    """A check of the list failed; the list holds what happened."""


class Checklist:
    """Runs named checks one after the other, says how each went, and keeps it for the report."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.checks: list[dict[str, Any]] = [
            {"name": name, "passed": None, "detail": "not run", "seconds": 0.0} for name in CHECKS
        ]

    @property
    def passed(self) -> bool:
        """Whether every check was made and held."""
        return all(check["passed"] for check in self.checks)

    @contextmanager
    def check(self, name: str) -> Iterator[list[str]]:
        """Makes one check; what is appended to the list becomes its detail.

        Raises:
            CheckFailedError: on any error within.
        """
        entry, notes, began = self.checks[CHECKS.index(name)], list[str](), time.perf_counter()
        try:
            yield notes
            entry.update(passed=True, detail=", ".join(notes))
        except Exception as error:
            entry.update(passed=False, detail=f"{type(error).__name__}: {error}")
            raise CheckFailedError(name) from error
        finally:
            entry["seconds"] = round(time.perf_counter() - began, 3)
            verdict = "ok  " if entry["passed"] else "FAIL"
            self._say(f"{verdict}  {name:<15}  {entry['seconds']:7.2f} s  {entry['detail']}")


@dataclass
class _Seen:
    """What the page shows and `report.json` does not hold."""

    steps: "list[Step]" = field(default_factory=list)
    stretch: "Stretch | None" = None
    peak_memory: int | None = None
    functions: list[str] = field(default_factory=list)


def run_smoke(
    files: Sequence[Path], out: Path, *, device: str = "cpu", epochs: int = 3, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Runs the whole pipeline on the files, or on data of its own making; writes `report.json` and `report.html`.

    Returns:
        The report; its "passed" tells whether every check held.
    """
    checklist, config, seen = Checklist(say), smoke_config(device, epochs), _Seen()
    report: dict[str, Any] = {"passed": False, "checks": checklist.checks, "data": {}, "model": {}}
    report |= {"validation_loss_before": None, "epochs": [], "device": device, "versions": _versions()}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out}: must be a folder that can be written; {error}.") from error
    try:
        _run(files, out, config, checklist, report, seen)
    except CheckFailedError as error:
        frames = traceback.walk_tb(error.__cause__.__traceback__ if error.__cause__ else None)
        seen.functions = [frame.f_code.co_qualname for frame, _ in frames]
        for entry in checklist.checks:
            if entry["passed"] is None:
                say(f"-     {entry['name']:<15}  {'':9}  not run")
    report["passed"] = checklist.passed
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    _write_page(out / "report.html", config, report, seen)
    return report


def _write_page(path: Path, config: RunConfig, report: dict[str, Any], seen: _Seen) -> None:
    from mamba2.report import smoke_page
    from mamba2.report.forecasts import forecasts_of
    from mamba2.report.model_flow import forecaster_flow
    from mamba2.report.page import write_page

    forecasts = None
    if seen.stretch is not None:
        forecasts = forecasts_of(seen.stretch._asdict(), config.data.targets[0], "validation")
    batch = min(config.train.batch, report["data"].get("train_sequences", config.train.batch))
    shown = smoke_page.Seen(
        flow=forecaster_flow(config, batch),
        losses=[step.loss for step in seen.steps],
        bars=sum(step.bars for step in seen.steps),
        peak_memory=seen.peak_memory,
        forecasts=forecasts,
        functions=seen.functions,
    )
    write_page(path, smoke_page.smoke_page(report, shown))


def _run(
    files: Sequence[Path], out: Path, config: RunConfig, checklist: Checklist, report: dict[str, Any], seen: _Seen
) -> None:
    """The pipeline, top to bottom; imports stand where they are checked."""
    check = checklist.check
    with check("imports") as note:
        for name in _IMPORTS:
            importlib.import_module(name.replace("-", "_"))
        import torch

        from mamba2.data.bars import load_bars
        from mamba2.data.dataset import make_tracks, split
        from mamba2.data.synthetic import write_example
        from mamba2.data.windows import batches
        from mamba2.evaluation.judge import held_back
        from mamba2.evaluation.stretch import forecast_stretch
        from mamba2.train.checkpoint import load_model, make_model
        from mamba2.train.device import choose_device, device_name, peak_memory
        from mamba2.train.evaluate import to_tensors, validation_loss
        from mamba2.train.loop import Epoch, Step, fit
        from mamba2.train.step import compute_gradients

        note.append(f"torch {torch.__version__}, Python {platform.python_version()}")
    with check("device") as note:
        place = choose_device(config.train.device)
        report["device"] = device_name(place)
        note.append(report["device"])
    with check("data") as note:
        market = load_bars(files or write_example(out / "data"))
        counts = {"files": market.files, "messages": market.messages, "instruments": len(market.series)}
        report["data"] |= counts
        note += [f"{count:,} {what}" for what, count in counts.items()]
    with check("features") as note:
        tracks = make_tracks(market, config.data)
        report["data"]["bars"] = tracks.bars
        note.append(f"{tracks.bars:,} bars of {config.data.contract}, {len(config.data.features)} features each")
    with check("split") as note:
        dataset = split(tracks, config.data)
        counts = {"train_sequences": len(dataset.train), "validation_sequences": len(dataset.validation)}
        report["data"] |= {"sequences": dataset.sequences, **counts}
        note.append(f"{dataset.sequences} sequences: {len(dataset.train)} train, {len(dataset.validation)} validation")
        note.append(f"{dataset.purged} purged between")
    with check("model") as note:
        torch.manual_seed(config.train.seed)
        model = make_model(config).to(place)
        report["model"]["parameters"] = sum(each.numel() for each in model.parameters())
        note.append(f"{report['model']['parameters']:,} parameters")
    with check("first batch") as note:
        first = to_tensors(next(batches(dataset.train, config.train.batch, rng=None)), place)
        forecast, _ = model(first.features, model.initial_state(len(first.features)))
        note.append(f"features {_sizes(first.features)} -> quantiles {_sizes(forecast.quantiles)}")
    with check("finite loss") as note:
        before = validation_loss(model, dataset.validation, config.train.batch)
        loss, norm, _ = compute_gradients(model, first, config.train.max_grad_norm)
        report["validation_loss_before"] = before
        _require(bool(loss.isfinite()), f"the loss of the first batch is {loss.item()}")
        note.append(f"{loss.item():.4f}; validation loss untrained {before:.4f}")
    with check("gradients") as note:
        _require_each(model, lambda weight: weight.grad is not None and bool(weight.grad.isfinite().all()), "finite")
        _require_each(model, lambda weight: weight.grad is not None and bool(weight.grad.any()), "other than zero")
        note.append(f"finite and not zero in all {len(list(model.parameters()))} parameter tensors")
        note.append(f"norm {norm.item():.3f}")
    progress = fit(model, dataset, config, out)
    with check("weights updated") as note:
        untrained = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        seen.steps += [event for event in (next(progress),) if isinstance(event, Step)]
        same = [name for name, weight in model.named_parameters() if torch.equal(weight, untrained[name])]
        _require(not same, f"the first step left {', '.join(same)} as it was")
        note.append(f"by the first step, all {len(untrained)} parameter tensors")
    with check("validation loss") as note:
        events = list(progress)
        epochs = [event for event in events if isinstance(event, Epoch)]
        seen.steps += [event for event in events if isinstance(event, Step)]
        report["epochs"] = [{**event._asdict(), "checkpoint": str(event.checkpoint)} for event in epochs]
        losses = [event.validation_loss for event in epochs]
        note += [f"epoch {event.epoch}: {event.validation_loss:.4f}" for event in epochs]
        _require(all(loss is not None for loss in losses), "there is none")
    with check("checkpoints") as note:
        for event in epochs:
            loaded, _ = load_model(event.checkpoint)
            again = validation_loss(loaded.to(place), dataset.validation, config.train.batch)
            _require(again == event.validation_loss, f"{event.checkpoint.name} loads with loss {again}")
        note.append(f"{len(epochs)} in {out / 'checkpoints'}, each gives its loss again")
    seen.stretch = forecast_stretch(model, tracks.contracts, held_back(tracks, dataset).start)
    seen.peak_memory = peak_memory(place)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TrainingError(f"smoke: {message}.")


def _require_each(model: Any, holds: Callable[[Any], bool], what: str) -> None:
    faults = [name for name, weight in model.named_parameters() if not holds(weight)]
    _require(not faults, f"every gradient must be {what}; not so in {', '.join(faults)}")


def _sizes(tensor: Any) -> str:
    return "x".join(map(str, tensor.shape))


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "mamba2": __version__, **{name: _version(name) for name in _IMPORTS}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
