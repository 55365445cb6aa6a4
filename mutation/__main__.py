"""`python -m mutation`: puts faults into the code and counts those that no test sees."""

import os

# Read when torch and the tests are imported. A pool of threads does not live on in a forked process.
os.environ |= {"OMP_NUM_THREADS": "1", "HYPOTHESIS_PROFILE": "mutation", "MAMBA2_SHAPES": "full"}

import argparse
import importlib
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from mutation.graft import graft, remove_check, shaped_functions
from mutation.mutants import mutants
from mutation.run import Judge, Outcome, Trial

GOAL = 95.0
"""Percent of the faults that the tests have to see."""

SHAPED = "@shaped"
FUSED = ("tests/ops/test_fused.py", "property_tests/test_fused.py")
PADS = "test_law[L8-pads_are_as_if_they_were_not_there-Mamba2]"
TESTS = {
    "ops/scan.py": ("ops/test_scan.py", "property_tests/test_scan.py", "-ScanSequential]", "-ScanChunked]"),
    "ops/conv.py": ("ops/test_conv.py", "ops/test_padding.py", "-CausalConv]", PADS),
    "ops/norm.py": ("ops/test_norm.py", "property_tests/test_norm.py"),
    "ops/padding.py": ("ops/test_padding.py", "property_tests/test_padding.py", PADS),
    "model/block.py": (
        "model/test_block.py",
        "model/test_backbone.py",
        "property_tests/test_padding.py",
        "-Mamba2]",
        *FUSED,
    ),
    "data/features.py": ("data/test_features.py", "no_feature_sees_the_future", "one_bar_at_a_time"),
    "ops/fused/plan.py": FUSED,
    "ops/fused/conv.py": FUSED,
    "ops/fused/gate.py": FUSED,
    "ops/fused/norm.py": FUSED,
    "ops/fused/scan.py": FUSED,
    "ops/fused/tile.py": FUSED,
    "ops/fused/step.py": ("tests/ops/test_fused.py", "-Mamba2]", "state_of_any_layout"),
    "ops/fused/mixer.py": FUSED,
    SHAPED: ("tests/test_refusals.py",),
}
"""The files that get faults, and parts of the names of the tests that are to see them."""

COLLECTED = (
    "tests/ops",
    "tests/test_refusals.py",
    "tests/model/test_block.py",
    "tests/model/test_backbone.py",
    "tests/data/test_features.py",
    "mamba2/ops",
    *(f"property_tests/test_{name}.py" for name in ("scan", "laws", "norm", "padding", "fused", "data")),
)

Key = tuple[str, str, str]


def trials_of(file: str) -> Iterator[Trial]:
    """All faults of a file; for `SHAPED`, one for each function of the package that checks its shapes."""
    if file == SHAPED:
        for name, function in shaped_functions():
            yield Trial(SHAPED, name, 0, "without @shaped", partial(remove_check, function))
        return
    module = importlib.import_module(f"mamba2.{file.removesuffix('.py').replace('/', '.')}")
    for each in mutants(Path(str(module.__file__)).read_text(encoding="utf-8")):
        yield Trial(file, each.function, each.line, each.text, partial(graft, module, each.tree))


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line for each file and one for all."""
    killed: dict[str, list[bool]] = {}
    for outcome in outcomes:
        killed.setdefault(outcome.file, []).append(outcome.is_killed)
    killed["all"] = [each for file in killed.values() for each in file]
    yield f"{'file':<20}{'faults':>8}{'seen':>8}{'not':>6}{'percent':>9}"
    for file, each in killed.items():
        yield f"{file:<20}{len(each):>8}{sum(each):>8}{len(each) - sum(each):>6}{percent(each):>9.1f}"


def percent(killed: list[bool]) -> float:
    """How many of a hundred."""
    return 100 * sum(killed) / len(killed)


def complaints(outcomes: list[Outcome], explained: dict[Key, str]) -> Iterator[str]:
    """Too few faults seen, a survivor that nothing explains, and an explanation of what does not survive."""
    if percent([each.is_killed for each in outcomes]) < GOAL:
        yield f"fewer than {GOAL:g} % of the faults are seen"
    survivors = {each[:3] for each in outcomes if not each.is_killed}
    judged = {each.file for each in outcomes}
    for key in sorted(survivors - explained.keys()):
        yield f"not explained in survivors.toml: {': '.join(key)}"
    for key in sorted(explained.keys() - survivors):
        if key[0] in judged:
            yield f"explained in survivors.toml, but there is no such survivor: {': '.join(key)}"


def explanations(path: Path) -> dict[Key, str]:
    """The survivors that are known, and why each cannot be seen."""
    known = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
    return {(each["file"], each["function"], text): each["why"] for each in known for text in each["mutants"]}


def main() -> int:
    """Each file after the other."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description="Count the faults that no test sees.")
    parser.add_argument("files", nargs="*", choices=[*TESTS, []], help="as in the table; all when not given")
    files = parser.parse_args().files or list(TESTS)
    tests = {file: (f"mamba2/{file}::", *TESTS[file]) for file in files}
    began = time.monotonic()
    judge = Judge({file: trials_of(file) for file in files}, tests)
    # A law that compiles takes a minute for every fault; the package, imported already, has no assertions to rewrite.
    options = ["-q", "-s", "--tb=native", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*options, "-k", "not compiled_it", *COLLECTED], plugins=[judge])
    if status:
        return int(status)
    print("\n".join(table(judge.outcomes)), f"{(time.monotonic() - began) / 60:.0f} minutes", sep="\n")
    wrong = list(complaints(judge.outcomes, explanations(Path(__file__).with_name("survivors.toml"))))
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
