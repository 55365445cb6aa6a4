"""The page *Write an adapter*, followed as it stands there."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "write-an-adapter.md"
BLOCKS = re.findall(r"^```\w+[^\n]*\n(.*?)^```\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
ADAPTER, COMMAND, TABLE, DETAIL, MENDED, AGAIN, TEST, _ = BLOCKS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a new user works; what was imported from there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("myssm", None)


def without_times(text: str) -> str:
    return re.sub(r"\d+ cases, \d+\.\d s", "", text)


def mended(source: str) -> str:
    """The file with each line of the page in place of the one that begins like it."""
    for line in MENDED.splitlines():
        beginning = re.escape(re.match(r"\s*(\w+ =|\w+\.append|return torch)", line)[0])
        source, changed = re.subn(rf"(?m)^{beginning}.*$", lambda _, line=line: line, source)
        assert changed == 1, line
    return source


def test_the_wrong_scan_is_judged_as_the_page_shows(command: Callable, folder: Path) -> None:
    (folder / "myssm.py").write_text(ADAPTER, encoding="utf-8")

    outcome = command(*COMMAND.split()[1:])

    assert without_times(outcome.out).startswith(without_times(TABLE))
    assert DETAIL in outcome.out
    assert outcome.status == 1


def test_the_mended_one_holds_all_that_it_claims(command: Callable, folder: Path) -> None:
    (folder / "myssm.py").write_text(mended(ADAPTER), encoding="utf-8")

    outcome = command(*AGAIN.split()[1:])

    assert outcome.out.endswith("15 holds, 0 broken, 3 not claimed\n")
    assert outcome.status == 0


def test_the_test_of_the_page_passes_in_a_project_without_any_settings(folder: Path) -> None:
    (folder / "myssm.py").write_text(mended(ADAPTER), encoding="utf-8")
    (folder / "test_myssm.py").write_text(TEST, encoding="utf-8")
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "L2- or L10-"]

    done = subprocess.run([*pytest_command, "test_myssm.py"], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1].startswith("2 passed")


def test_the_adapter_is_about_thirty_lines_long() -> None:
    assert len(ADAPTER.splitlines()) <= 35
