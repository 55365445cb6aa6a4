"""Predictions as lines of JSON."""

import json

from mamba2.config import RunConfig
from mamba2.data.bars import utc
from mamba2.live.engine import Prediction


def prediction_line(prediction: Prediction, config: RunConfig) -> str:
    """One line: which bar, from when on it can be known, and for each target mean and quantiles.

    Each forecast stands there twice: in units of the bar's volatility, as the model gives it, and under `raw` as a log
    return or a log range.
    """
    bar = prediction.bar
    return json.dumps(
        {
            "symbol": bar.key.symbol,
            "instrument_id": bar.key.instrument_id,
            "publisher_id": bar.key.publisher_id,
            "time": utc(bar.time),
            "available_at": utc(prediction.available_at),
            "close": bar.close / 1e9,
            "warm_up": prediction.warm_up,
            "bars_since_segment_start": prediction.since_start,
            "volatility": prediction.volatility,
            "horizon": config.data.horizon,
            "forecast": {
                target: _forecast(prediction, column, config.model.quantiles)
                for column, target in enumerate(config.data.targets)
            },
        },
        allow_nan=False,
    )


def gap_line(since: int, why: str) -> str:
    """The line that marks a lost connection: what happened after the last bar is unknown.

    Args:
        since: open of the last bar, nanoseconds UTC; negative when there was none.
        why: what the connection was lost by.
    """
    return json.dumps({"gap_after": utc(since) if since >= 0 else None, "why": why})


def _forecast(prediction: Prediction, column: int, levels: tuple[float, ...]) -> dict[str, object]:
    mean = float(prediction.mean[column])
    quantiles = {str(level): float(value) for level, value in zip(levels, prediction.quantiles[column], strict=True)}
    s = prediction.volatility
    return {
        "mean": mean,
        "quantiles": quantiles,
        "raw": {"mean": mean * s, "quantiles": {level: value * s for level, value in quantiles.items()}},
    }
