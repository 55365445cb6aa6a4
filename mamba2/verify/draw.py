"""How Hypothesis draws the cases of a law: small sizes first, every option that is claimed, then a seed."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from mamba2.verify.case import Case
from mamba2.verify.implementation import Implementation
from mamba2.verify.laws.law import Law

MOST_TIME = {"scan": 24, "conv": 33, "block": 16, "model": 10}
"""Long enough for several chunks and several windows; a model repeats what its blocks do."""


MUCH = 10
"""A law that costs more than this tries few cases."""

SMALL_CASES = (
    Case(time=1),
    Case(batch=2, time=1),
    Case(time=2, width=4),  # shorter than the window of the convolution
    Case(time=3, chunk=8),  # shorter than a chunk
    Case(time=9, width=4, chunk=4, cuts=(1, 8)),
    Case(time=7, width=2, chunk=3, cuts=(4,)),  # three chunks, and a cut after the first
    Case(batch=2, time=8, width=3, chunk=4, cuts=(4,)),
)
"""Tried before any that is drawn."""


def can_run(implementation: type[Implementation], case: Case) -> bool:
    """Whether the implementation claims the dtype of a case."""
    return case.dtype == "float32" or case.dtype in implementation.claims


def fixed_cases(law: Law, implementation: type[Implementation]) -> tuple[Case, ...]:
    """Those that are tried whatever is drawn; of a law that compiles only the last, in a dtype that can run."""
    chosen = SMALL_CASES[-1:] if law.cost > MUCH else SMALL_CASES
    dtype = "float64" if "float64" in implementation.claims else "float32"
    return tuple(replace(case, dtype=dtype) for case in chosen)


def simpler(case: Case, name: str, law: Law, implementation: type[Implementation]) -> Iterator[Case]:
    """The same case with less in one field, the least first; each could have been drawn."""
    value, least = getattr(case, name), case.group if name == "head" else getattr(Case(), name)
    match name:
        case "time":
            for end in range(1, case.time):
                yield replace(case, time=end, cuts=tuple(cut for cut in case.cuts if cut <= end))
        case "cuts":
            fewer: list[tuple[int, ...]] = [(), (1,), *((cut,) for cut in value)]
            yield from (replace(case, cuts=cuts) for cuts in fewer[: fewer.index(value) if value in fewer else None])
        case "batch" | "dtype" if value == 0 or name == "dtype":
            return
        case "group" if "groups" in law.needs:
            return
        case "conv_bias" if "conv_bias" in implementation.claims and "no conv_bias" not in implementation.claims:
            return
        case _ if value != least:
            change: dict[str, Any] = {name: least}
            made = replace(case, **change)
            yield made if made.head * made.channel % made.expand == 0 else replace(made, expand=1)


@st.composite
def cases(draw: st.DrawFn, law: Law, implementation: type[Implementation]) -> Case:
    """Any case that the law speaks of and the implementation claims to run."""
    claims = implementation.claims
    least = 0 if law.may_be_empty or "empty" in claims else 1
    dtypes = _dtypes(law, claims)
    sizes = draw(_sizes(law, implementation, least))
    time, width = sizes["time"], sizes["head"] * sizes["channel"]
    dtype = draw(st.sampled_from(dtypes))
    return Case(
        **sizes,
        chunk=draw(st.integers(1, time + 3)),
        expand=draw(st.sampled_from([each for each in (1, 2, 3) if width % each == 0])),
        cuts=tuple(sorted(draw(st.lists(st.integers(0, time), max_size=3)))),
        dtype=dtype,
        values=draw(st.sampled_from(law.values)) if dtype.startswith("float") and dtype != "float16" else "ordinary",
        pad=draw(st.sampled_from([0.0, 1.0, 1e30, math.inf, math.nan])) if "padding" in law.needs else 0.0,
        **_options(draw, implementation),
        seed=draw(st.integers(0, 2**16)),
    )


@st.composite
def _sizes(draw: st.DrawFn, law: Law, implementation: type[Implementation], least: int) -> dict[str, Any]:
    grouped = "groups" in implementation.claims
    group = draw(st.sampled_from([2, 3, 4] if "groups" in law.needs else [1, 2, 3, 4] if grouped else [1]))
    sizes = {
        "group": group,
        "head": group * draw(st.integers(1, 8 // group)),
        "batch": draw(st.integers(least, 3)),
        "channel": draw(st.integers(1, 6)),
        "state": draw(st.integers(1, 6)),
        "width": draw(st.integers(1, 5)),
        "time": draw(st.integers(least, MOST_TIME[implementation.level])),
    }
    layers = draw(st.integers(1, 2)) if implementation.level == "model" else 1
    return (_made_different(sizes) if draw(st.booleans()) else sizes) | {"layers": layers}


def _made_different(sizes: dict[str, Any]) -> dict[str, Any]:
    """No two axes of the same size, so that none can stand for another unseen: the later gives way, and 0 stays 0."""
    taken: set[int] = set()
    for name, size in sizes.items():
        while size and size in taken:
            size += sizes["group"] if name == "head" else 1
        taken.add(size)
        sizes = sizes | {name: size}
    return sizes


def _dtypes(law: Law, claims: frozenset[str]) -> list[str]:
    named = ["float64", "float32", "bfloat16", "float16"]
    wanted = named if law.halves else named[:2]
    return [each for each in wanted if each == "float32" or each in claims]


def _options(draw: st.DrawFn, implementation: type[Implementation]) -> dict[str, Any]:
    """Each option out of what is claimed, the usual one first."""
    if implementation.level not in ("block", "model"):
        return {}
    claims = implementation.claims

    def one_of(*options: tuple[str, Any]) -> Any:
        return draw(st.sampled_from([value for claim, value in options if not claim or claim in claims]))

    always_bias = "conv_bias" in claims and "no conv_bias" not in claims
    return {
        "dt_range": one_of(
            ("", (0.0, math.inf)),
            ("dt_range", (0.01, 0.1)),
            ("dt_range", (0.3, 1.0)),
            ("dt_range", (0.0, 0.05)),
            ("dt_range", (0.5, 0.5)),
        ),
        "bias": one_of(("", False), ("bias", True)),
        "conv_bias": True if always_bias else one_of(("", False), ("conv_bias", True)),
        "D": one_of(("", "head"), ("D per channel", "channel"), ("no D", "none")),
        "norm": one_of(("", "after gate"), ("norm before gate", "before gate"), ("no norm", "none")),
    }
