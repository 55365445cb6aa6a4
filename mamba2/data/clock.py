"""Times in nanoseconds: their units, as text, and as a wall clock of the exchange shows them."""

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

INTERVAL_NAMES = {SECOND: "1s", MINUTE: "1m", HOUR: "1h", DAY: "1d"}
EXCHANGE = ZoneInfo("America/Chicago")


def utc(time: int) -> str:
    """A time in nanoseconds UTC as text, such as 2024-01-02T23:00:00Z."""
    return f"{np.datetime64(int(time), 'ns').astype('datetime64[s]')}Z"


def exchange_time(time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Wall time of the exchange, America/Chicago, of ascending times UTC; all in nanoseconds."""
    if len(time) == 0:
        return time
    hours = time // HOUR
    first, last = int(hours[0]), int(hours[-1])
    offsets = np.array([_utc_offset(hour) for hour in range(first, last + 1)])
    local: NDArray[np.int64] = time + offsets[hours - first]
    return local


@cache
def _utc_offset(hour: int) -> int:
    """Nanoseconds from UTC to exchange time; clocks change on whole hours, so one look-up serves each hour."""
    offset = datetime.fromtimestamp(hour * 3600, EXCHANGE).utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * SECOND
