"""Runs the tests that are to see the faults of a file, in a forked process for each fault."""

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

import pytest

MEMORY = 16 << 30
"""Bytes of address space for a process: a fault may ask for any number of them."""


class Trial(NamedTuple):
    """A fault, and what puts it into the running program."""

    file: str
    function: str
    line: int
    text: str
    apply: Callable[[], object]


class Outcome(NamedTuple):
    """A fault, and whether a test saw it."""

    file: str
    function: str
    text: str
    is_killed: bool


class Judge:
    """A plugin of pytest that collects the tests once and runs those of each fault until one fails.

    `trials` are the faults of each file, `tests` parts of the names of its tests.
    """

    def __init__(self, trials: dict[str, Iterable[Trial]], tests: dict[str, tuple[str, ...]]) -> None:
        self.trials, self.tests = trials, tests
        self.outcomes: list[Outcome] = []
        self.has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a failure."""
        self.has_failed = self.has_failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judges one file after the other, instead of running all tests."""
        for file, trials in self.trials.items():
            items = [item for item in session.items if any(part in item.nodeid for part in self.tests[file])]
            self._judge(items, trials)
        return True

    def _judge(self, items: list[pytest.Item], trials: Iterable[Trial]) -> None:
        """Tests run first that are quick, or have seen many faults before."""
        has_passed, seconds = self._run(items, lambda: None, limit=600)
        if not has_passed:
            raise pytest.UsageError(f"{items[len(seconds)].nodeid} fails without a fault.")
        cost, seen = dict(zip(items, seconds, strict=True)), Counter[pytest.Item]()
        limit = 10 + 3 * int(sum(seconds))
        for trial in trials:
            items.sort(key=lambda item: cost[item] / (1 + seen[item]))
            is_alive, passed = self._run(items, trial.apply, limit)
            self.outcomes.append(Outcome(trial.file, trial.function, trial.text, not is_alive))
            if is_alive:
                print(f"survives: {trial.file}:{trial.line}: {trial.function}: {trial.text}", flush=True)
            elif len(passed) < len(items):
                seen[items[len(passed)]] += 1

    def _run(self, items: list[pytest.Item], apply: Callable[[], object], limit: int) -> tuple[bool, list[float]]:
        """Whether all tests pass with the fault, and the seconds of those that did before one failed."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            self._run_here(items, apply, limit, writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            seconds = [float(line) for line in lines]
        return os.waitpid(child, 0)[1] == 0, seconds

    def _run_here(self, items: list[pytest.Item], apply: Callable[[], object], limit: int, writer: int) -> NoReturn:
        """In a process of its own, which ends here."""
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                os.dup2(nowhere, stream.fileno())
            items[0].config.pluginmanager.unregister(name="terminalreporter")
            apply()
            for item in items:
                began = time.monotonic()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                if self.has_failed:
                    break
                os.write(writer, f"{time.monotonic() - began}\n".encode())
        except BaseException:
            self.has_failed = True
        os._exit(self.has_failed)
