"""The command and the pytest plugin: what they print and how they exit."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BROKEN = """
from mamba2.verify.adapters.ours import CausalConv


class Doubled(CausalConv):
    def run(self, x, weight, bias, state):
        y, state = super().run(x, weight, bias, state)
        return 2 * y, state
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Beside where the command runs."""
    (tmp_path / "doubled.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "doubled:Doubled"


def suite(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "--max-examples", "2"]
    command += ["--pyargs", "mamba2.verify.suite", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_right_implementation_exits_with_0(command: Callable) -> None:
    outcome = command("verify", "ours.conv", "--examples", 3)

    assert outcome.status == 0
    assert outcome.out.splitlines()[0].startswith("L1   shapes follow from the sizes alone")
    assert outcome.out.splitlines()[-1] == "14 holds, 0 broken, 2 not claimed"


def test_a_broken_one_exits_with_1_and_says_how(command: Callable, broken: str, tmp_path: Path) -> None:
    outcome = command("verify", broken, "--examples", 5, "--json", tmp_path / "verdicts.json")

    assert outcome.status == 1
    assert "L2 doubled:Doubled: " not in outcome.out  # it is named as the class is
    assert "\nL2 Doubled: S[t] = " in outcome.out
    assert "  smallest counterexample: batch=1 time=1" in outcome.out.replace("batch=1 time=1\n", "batch=1 time=1")
    assert "    from doubled import Doubled\n    from mamba2.verify import Case, laws\n" in outcome.out
    verdicts = {each["name"]: each for each in json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))}
    assert verdicts["a_run_is_the_textbook"]["error"] == pytest.approx(1.0)
    assert verdicts["shapes_follow_from_the_sizes_alone"]["outcome"] == "holds"


def test_a_page_shows_what_the_terminal_says(command: Callable, broken: str, tmp_path: Path) -> None:
    outcome = command("verify", broken, "--examples", 5, "--report", tmp_path / "verify.html")
    html = (tmp_path / "verify.html").read_text(encoding="utf-8")

    assert outcome.status == 1
    assert outcome.out.splitlines()[-1] == f"page: {tmp_path / 'verify.html'}"
    assert "L2 of Doubled: a run is the textbook" in html
    assert "from doubled import Doubled\nfrom mamba2.verify import Case, laws\n" in html


def test_another_level_than_it_has_is_refused(command: Callable) -> None:
    outcome = command("verify", "ours.conv", "--level", "block")

    assert (outcome.status, outcome.err) == (1, "mamba2: --level: must be a level that ours.conv has; got block.\n")


UNFIT = """
from mamba2.verify.adapters.ours import CausalConv


class Boastful(CausalConv):
    claims = CausalConv.claims | {"tied"}


class Narrow(CausalConv):
    def run(self, x, state): ...
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Boastful", "Boastful: claims 'tied', so it must have tied. Write def tied(self)."),
        (
            "Narrow",
            "Narrow.run: must take (x, weight, bias, state); takes (self, x, state). Write def run(self, x, weight, "
            "bias, state).",
        ),
        ("Absent", "unfit:Absent: unfit has no Absent. Write class Absent(Block) there."),
    ],
)
def test_a_target_that_is_unfit_gets_one_line(
    command: Callable, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfit.py").write_text(UNFIT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    outcome = command("verify", f"unfit:{name}")

    assert (outcome.status, outcome.out, outcome.err) == (1, "", f"mamba2: {message}\n")


@pytest.mark.parametrize("error", ["RuntimeError", "ImportError"])
def test_a_target_in_a_package_that_raises_gets_one_line(
    command: Callable, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"raises_{error.lower()}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"raise {error}('no weights')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    outcome = command("verify", f"{package}.part:Any")

    expected = f"mamba2: {package}.part:Any: {package}.part does not import: {error}: no weights\n"
    assert (outcome.status, outcome.out, outcome.err) == (1, "", expected)


def test_the_suite_skips_expects_and_reports_stale_entries(tmp_path: Path, broken: str) -> None:
    (tmp_path / "skips").write_text("# not yet\nL6: later\nL99: gone\n", encoding="utf-8")
    (tmp_path / "xfails").write_text("L2: doubles\nL12: doubles\nL14: doubles\nL21[Doubled]: doubles\nL3: doubles\n")
    done = suite(tmp_path, "--mamba2-impl", broken, "--mamba2-skips", "skips", "--mamba2-xfails", "xfails")

    assert "skips, line 3: must name a law that the implementation claims; got 'L99'. Remove the line." in done.stdout
    assert "suite.py: later" in done.stdout
    assert "5 xfailed" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "mamba2.verify.suite: needs an implementation to judge. Add --mamba2-impl MODULE:NAME."),
        (("--mamba2-impl", "nothing"), "nothing: must be one of niverel, ours, "),
    ],
)
def test_the_suite_without_a_target_says_what_to_add(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = suite(tmp_path, *arguments)

    assert message in done.stdout
    assert done.returncode != 0


def test_the_plugin_does_not_import_torch() -> None:
    command = "import sys, mamba2.pytest_plugin; print('torch' in sys.modules, 'hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)

    assert done.stdout == "False False\n"
