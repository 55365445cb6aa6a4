"""What a law is: a statement about one trial, at which levels it holds, and what has to be claimed for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mamba2.verify.case import Case
from mamba2.verify.implementation import Implementation
from mamba2.verify.trial import Trial

LEVEL_COST = {"scan": 1, "conv": 1, "block": 3, "model": 5}
"""What is built of others repeats their sizes: it needs fewer cases, and takes longer for each."""

LAWS: "list[Law]" = []
"""All of them, in the order of their numbers."""


@dataclass(frozen=True)
class Law:
    """Called with an implementation and a case, it raises unless it holds."""

    number: int
    name: str
    statement: str
    check: Callable[[Trial], None]
    levels: tuple[str, ...]
    needs: frozenset[str]
    values: tuple[str, ...]
    """Which kinds of numbers to draw, the plain ones first."""
    halves: bool
    """Whether half precision is drawn as well."""
    may_be_empty: bool
    """Whether no sequences and no steps are drawn although the implementation does not claim them."""
    cost: int
    """How many ordinary examples one of this law costs."""

    @property
    def id(self) -> str:
        """`L1`, `L2`, …."""
        return f"L{self.number}"

    def missing(self, implementation: type[Implementation]) -> str | None:
        """Why the law does not apply to an implementation, if so."""
        if implementation.level not in self.levels:
            return f"has no content at the level {implementation.level}"
        lacking = sorted(self.needs - implementation.claims)
        return f"not claimed: {', '.join(lacking)}" if lacking else None

    def examples(self, implementation: type[Implementation], wanted: int) -> int:
        """How many cases to draw where `wanted` are for an ordinary law of a scan."""
        return max(1, wanted // (self.cost * LEVEL_COST[implementation.level]))

    def __call__(self, implementation: type[Implementation], case: Case) -> None:
        """Checks one case.

        Raises:
            MismatchError: a value, a shape or a dtype is not what the law says.
        """
        with torch.set_grad_enabled("gradients" in implementation.claims):
            self.check(Trial(implementation, case))


def law(
    number: int,
    *,
    levels: tuple[str, ...] = ("scan", "conv", "block", "model"),
    needs: tuple[str, ...] = (),
    values: tuple[str, ...] = ("ordinary",),
    halves: bool = False,
    may_be_empty: bool = False,
    cost: int = 1,
) -> Callable[[Callable[[Trial], None]], Law]:
    """Makes a law of a function whose docstring is its statement."""

    def make(check: Callable[[Trial], None]) -> Law:
        made = Law(
            number=number,
            name=check.__name__,
            statement=" ".join((check.__doc__ or "").split()),
            check=check,
            levels=levels,
            needs=frozenset(needs),
            values=values,
            halves=halves,
            may_be_empty=may_be_empty,
            cost=cost,
        )
        LAWS.append(made)
        LAWS.sort(key=lambda each: each.number)
        return made

    return make
