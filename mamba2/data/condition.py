"""Days on which Databento says that its data have flaws, as `condition.json` beside a file lists them."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import date

from mamba2.data.clock import DAY
from mamba2.data.series import Source
from mamba2.errors import DataError

Conditions = Mapping[date, str]
"""UTC days that are not what they should be, and what is said of them: degraded, pending or missing."""

AVAILABLE = "available"
_EPOCH = date(1970, 1, 1).toordinal()


def find_conditions(sources: Sequence[Source]) -> dict[date, str]:
    """What `condition.json` and `<name>.condition.json` beside the files say of the days that each file spans.

    Raises:
        DataError: such a file cannot be read or lists something else.
    """
    found: dict[date, str] = {}
    shared: dict[str, Conditions] = {}  # plain strings: paths are slow beside small files
    for source in sources:
        if source.conditions is not None:
            found |= source.conditions
            continue
        folder = os.path.dirname(source.path)
        if folder not in shared:
            shared[folder] = read_conditions(os.path.join(folder, "condition.json"))
        listed = {**shared[folder], **read_conditions(f"{source.path}.condition.json")}
        if listed and source.parts:
            first, last = day_of(source.first), day_of(source.last)
            found |= {day: what for day, what in listed.items() if first <= day <= last}
    return dict(sorted(found.items()))


def read_conditions(path: str) -> Conditions:
    """The days of the file that are not available; none where there is no file.

    Raises:
        DataError: the file cannot be read or lists something else.
    """
    if not os.path.exists(path):
        return {}
    try:
        with open(path, "rb") as file:
            days = [(date.fromisoformat(each["date"]), each["condition"]) for each in json.load(file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: must list days with date and condition, as Databento does; got {error!r}. "
            "Fetch it again, or move it away."
        ) from error
    return {day: what for day, what in days if what != AVAILABLE}


def day_of(time: int) -> date:
    """The UTC day of a time in nanoseconds."""
    return date.fromordinal(_EPOCH + time // DAY)


def opening(day: date) -> int:
    """When the UTC day begins, in nanoseconds."""
    return (day.toordinal() - _EPOCH) * DAY
