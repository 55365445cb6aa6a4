"""pytest's options for `mamba2.verify.suite`; nothing heavy is imported before they are used."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SUITE = "mamba2.verify.suite"
STALE = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--mamba2-impl`, `--mamba2-skips`, `--mamba2-xfails`, `--max-examples`."""
    group = parser.getgroup("mamba2", f"mamba2: the laws of a Mamba-2 (--pyargs {SUITE})")
    group.addoption("--mamba2-impl", metavar="MODULE:NAME", help="The implementation to judge.")
    group.addoption("--mamba2-skips", type=Path, metavar="FILE", help="Laws not to run: lines of `L8: why`.")
    group.addoption("--mamba2-xfails", type=Path, metavar="FILE", help="Laws known to be broken: lines of `L8: why`.")
    group.addoption("--max-examples", type=int, metavar="N", help="Cases to draw for each law of the suite.")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is judged."""
    target = config.getoption("mamba2_impl")
    return f"mamba2: judging {target}" if target else None


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis draws as many examples as were asked for."""
    config.stash[STALE] = []
    wanted = config.getoption("max_examples")
    if wanted is not None:
        if wanted < 1:
            raise pytest.UsageError(f"--max-examples: must be at least 1; got {wanted}.")
        from hypothesis import settings

        usual = settings.get_profile(settings.get_current_profile_name())
        settings.register_profile("mamba2", usual, max_examples=wanted)
        settings.load_profile("mamba2")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the suite for each law at the level of each implementation."""
    if metafunc.module.__name__.endswith(SUITE):
        metafunc.parametrize(("law", "implementation"), law_parameters(metafunc.config))


def law_parameters(config: pytest.Config) -> list[Any]:
    """A law, an implementation and its marks for each test of the suite."""
    from mamba2.errors import ConfigError
    from mamba2.verify.laws import LAWS
    from mamba2.verify.targets import load_implementations

    target = config.getoption("mamba2_impl")
    if not target:
        raise pytest.UsageError(f"{SUITE}: needs an implementation to judge. Add --mamba2-impl MODULE:NAME.")
    try:
        implementations = load_implementations(target)
    except ConfigError as error:
        raise pytest.UsageError(error.headline) from None
    skips, xfails = (_entries(config.getoption(option)) for option in ("mamba2_skips", "mamba2_xfails"))
    parameters = []
    for shown, implementation in implementations.items():
        for law in LAWS:
            if implementation.level not in law.levels:
                continue
            marks = []
            missing = law.missing(implementation)
            if missing:
                marks.append(pytest.mark.skip(reason=missing))
            else:
                names = (law.id, law.name, f"{law.id}[{shown}]", f"{law.name}[{shown}]")
                marks += [pytest.mark.skip(reason=each.why) for each in _take(skips, names)]
                marks += [pytest.mark.xfail(reason=each.why, strict=True) for each in _take(xfails, names)]
            parameters.append(pytest.param(law, implementation, marks=marks, id=f"{law.id}-{law.name}-{shown}"))
    config.stash[STALE] += [each.complaint for each in (*skips, *xfails) if not each.used]
    return parameters


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Entries of the files that name no law which was run."""
    for complaint in config.stash[STALE]:
        terminalreporter.write_line(f"mamba2: {complaint}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A stale entry fails the run."""
    if session.config.stash[STALE] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass
class _Entry:
    """A line of a file of skips or xfails."""

    name: str
    why: str
    where: str
    used: bool = False

    @property
    def complaint(self) -> str:
        return f"{self.where}: must name a law that the implementation claims; got {self.name!r}. Remove the line."


def _entries(path: Path | None) -> list[_Entry]:
    if path is None:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"{path}: cannot be read: {error}") from None
    return list(_parsed(text, path))


def _parsed(text: str, path: Path) -> Iterator[_Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, why = (part.strip() for part in line.partition(":"))
        where = f"{path}, line {number}"
        if not why:
            raise pytest.UsageError(f"{where}: must say why; got {line.strip()!r}. Write {name}: and the reason.")
        yield _Entry(name, why, where)


def _take(entries: list[_Entry], names: tuple[str, ...]) -> list[_Entry]:
    found = [each for each in entries if each.name in names]
    for each in found:
        each.used = True
    return found
