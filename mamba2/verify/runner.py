"""Laws over an implementation, one verdict after the other, with the smallest counterexample of each that is broken."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from mamba2.verify.case import Case
from mamba2.verify.checks import MismatchError
from mamba2.verify.draw import cases, fixed_cases, simpler
from mamba2.verify.implementation import Implementation
from mamba2.verify.laws import LAWS, Law

SHRINKING = 15.0
"""Seconds to look for a smaller counterexample."""


@dataclass(frozen=True)
class Verdict:
    """What became of a law."""

    implementation: type[Implementation]
    target: str
    law: Law
    outcome: str
    """'holds', 'broken' or 'not claimed'."""
    why: str = ""
    """What is wrong, or what is not claimed."""
    case: Case | None = None
    """The smallest counterexample."""
    error: float | None = None
    allowed: float | None = None
    examples: int = 0
    seconds: float = 0.0
    raised: str = ""
    """The whole text of an error that is no mismatch, with its type."""

    @property
    def test(self) -> str:
        """A test to paste, which fails as long as the law is broken."""
        module, name = self.implementation.__module__, self.implementation.__name__
        return (
            f"from {module} import {name}\n"
            f"from mamba2.verify import Case, laws\n\n\n"
            f"def test_{self.law.name}():\n"
            f"    laws.{self.law.name}({name}, {self.case!r})\n"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "implementation": self.target,
            "level": self.implementation.level,
            "law": self.law.id,
            "name": self.law.name,
            "statement": self.law.statement,
            "outcome": self.outcome,
            "why": self.why,
            "raised": self.raised or None,
            "counterexample": str(self.case) if self.case else None,
            "in_words": self.case.in_words if self.case else None,
            "sizes": self.case.sizes if self.case else None,
            "test": self.test if self.case else None,
            "error": self.error,
            "allowed": self.allowed,
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
        }


def verify(
    implementations: dict[str, type[Implementation]], *, examples: int, laws: Iterable[Law] = LAWS
) -> Iterator[Verdict]:
    """A verdict for every law that has content at the level of each implementation."""
    for target, implementation in implementations.items():
        for law in laws:
            if implementation.level in law.levels:
                yield judge(law, implementation, target=target, examples=examples)


def judge(law: Law, implementation: type[Implementation], *, target: str, examples: int) -> Verdict:
    """Tries a law on so many cases; a cheaper number where one of its own costs more."""
    if missing := law.missing(implementation):
        return Verdict(implementation, target, law, "not claimed", missing)
    begin, search = time.perf_counter(), _Search(law, implementation)
    tried = search.run(law.examples(implementation, examples))
    seconds = time.perf_counter() - begin
    if search.smallest is None:
        return Verdict(implementation, target, law, "holds", examples=tried, seconds=seconds)
    case, error = search.smallest
    measured = (error.error, error.allowed) if isinstance(error, MismatchError) else (None, None)
    raised = "" if isinstance(error, MismatchError) else f"{type(error).__name__}: {error}"
    return Verdict(implementation, target, law, "broken", _what(error), case, *measured, tried, seconds, raised)


class _Search:
    """Runs a law on drawn cases and remembers the smallest that breaks it."""

    def __init__(self, law: Law, implementation: type[Implementation]) -> None:
        self.law = law
        self.implementation = implementation
        self.smallest: tuple[Case, Exception] | None = None
        self.stop = float("inf")

    def run(self, examples: int) -> int:
        """How many cases were tried."""
        tried = 0

        def check(case: Case) -> None:
            nonlocal tried
            tried += 1
            if time.perf_counter() > self.stop:
                return
            try:
                self.law(self.implementation, case)
            except Exception as error:
                self._remember(case, error)
                error.__context__ = None  # by it Hypothesis would take one error for two, and stop looking
                raise

        strategy = cases(self.law, self.implementation)
        try:
            _settings(examples)(given(strategy)(check))()
        except Exception:
            # Its report is ours to write; an error of the search itself, with nothing broken, is no verdict.
            if self.smallest is None:
                raise
        if self.smallest is None:
            fixed = fixed_cases(self.law, self.implementation)
            tried += len(fixed)
            for case in fixed:
                self._try(case)
        self._bring_down()
        return tried

    def _bring_down(self) -> None:
        """One field of the smallest case after the other to its least: what was drawn holds other things up."""
        before, self.stop = None, time.perf_counter() + SHRINKING / 3
        while self.smallest is not None and self.smallest[0] != before:
            before = self.smallest[0]
            for field in fields(Case):
                for case in simpler(self.smallest[0], field.name, self.law, self.implementation):
                    if self._try(case):
                        break

    def _try(self, case: Case) -> bool:
        """Whether a case breaks the law; not tried any more when there is no time left."""
        if time.perf_counter() > self.stop:
            return False
        try:
            self.law(self.implementation, case)
        except Exception as error:
            self._remember(case, error)
            return True
        return False

    def _remember(self, case: Case, error: Exception) -> None:
        self.stop = min(self.stop, time.perf_counter() + SHRINKING)
        if self.smallest is None or _size(case) <= _size(self.smallest[0]):
            self.smallest = case, error


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def _size(case: Case) -> tuple[int, int]:
    sizes = (case.batch, case.time, case.head, case.channel, case.state, case.width, case.layers)
    return sum(sizes) + len(str(case).split()), case.chunk + case.seed


def _what(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return first if isinstance(error, MismatchError) else f"raised {type(error).__name__}: {first}"
