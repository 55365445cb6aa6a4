"""The faults that are put into the code: which there are, where they land, and what is said of those unseen."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mamba2.errors import ShapeError
from mamba2.ops import conv
from mamba2.shapes import shaped
from mutation.__main__ import TESTS, complaints, explanations, table, trials_of
from mutation.graft import graft, remove_check
from mutation.mutants import mutants
from mutation.run import Outcome


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("x = a + b", ["x = a - b"]),
        ("x = a < 1", ["x = a <= 1", "x = a < 2"]),
        ("x = a if not b else c", ["x = a", "x = c", "x = a if b else c"]),
        ("if a:\n    b", ["if True or a:", "if False and a:"]),
        ("x = a[1:b]", ["x = a[:b]", "x = a[1:]", "x = a[2:b]"]),
        ("x = a.exp()", ["x = a"]),
        ("x = a.sum(b, keepdim=True)", ["x = a", "x = a.sum(b)", "x = a.sum(b, keepdim=False)"]),
        ("import torch\nx = torch.sub(a, b)", ["x = a", "x = torch.add(a, b)"]),
        ("x = max(a, b)", ["x = a", "x = b", "x = min(a, b)"]),
        ("x = a.mT", ["x = a"]),
        ("x[i] = a", ["without: x[i] = a"]),
        ("x += 0.5", ["without: x += 0.5", "x -= 0.5", "x += 1.0"]),
        ("x = [a for a in b if c]", ["x = [a for a in b]"]),
        ("x = f'{a} is wrong'", ["x = f'{a} is wrongXX'"]),
        ("x = zip(a, b, strict=True)", ["x = a"]),
        ("@f(1)\ndef g(x: Literal[1]) -> Literal[2]:\n    'Says 3.'\n    y: Literal[4]", []),
    ],
)
def test_the_faults_of_one_statement(source, texts):
    assert [each.text for each in mutants(source)] == texts


def test_a_fault_is_said_to_be_in_its_function():
    source = "class C:\n    def f(self):\n        def g():\n            return 1\n"

    assert [each[1:] for each in mutants(source)] == [("C.f.g", 4, "return 2")]


SOURCE = """
from mamba2.shapes import shaped

LIMIT = 1

@shaped
def limited(x: float, least: float = 0.0) -> float:
    return max(least, min(x, LIMIT))

class Holder:
    @staticmethod
    def double(x):
        return 2 * x
"""


def test_a_graft_reaches_whoever_has_imported_the_function(tmp_path, monkeypatch):
    (tmp_path / "grafted.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import grafted

    limited, double = grafted.limited, grafted.Holder.double
    trees = {each.text: each.tree for each in mutants(SOURCE)}

    graft(grafted, trees["LIMIT = 2"])
    assert (limited(5.0), double(5)) == (2, 10)
    graft(grafted, trees["return 3 * x"])
    assert (limited(5.0), double(5)) == (1, 15)
    graft(grafted, trees["def limited(x: float, least: float=1.0) -> float:"])
    assert limited(-5.0) == 1.0


def test_a_check_can_be_removed():
    function = shaped(conv.causal_conv1d_step.__wrapped__, "full")
    wrong = torch.ones(1, 1, 2), torch.ones(2, 1), torch.ones(1), torch.ones(1, 0, 2)
    with pytest.raises(ShapeError):
        function(*wrong)

    remove_check(function)

    assert function(*wrong)[0].tolist() == [[[2.0, 2.0]]]


def test_every_function_that_checks_is_tried_without_its_check():
    names = [each.function for each in trials_of("@shaped")]

    assert {"ops.scan.scan_chunked", "ops.fused.mixer.fused_mixer", "model.block.Mamba2Block.step"} <= set(names)


SEEN, UNSEEN = Outcome("a.py", "f", "x = 1", True), Outcome("a.py", "g", "x = 2", False)
KEY = UNSEEN[:3]


def test_the_table_counts_by_file():
    assert list(table([SEEN, SEEN, UNSEEN, Outcome("b.py", "f", "x = 1", True)])) == [
        "file                  faults    seen   not  percent",
        "a.py                       3       2     1     66.7",
        "b.py                       1       1     0    100.0",
        "all                        4       3     1     75.0",
    ]


@pytest.mark.parametrize(
    ("outcomes", "explained", "said"),
    [
        ([SEEN] * 19 + [UNSEEN], {KEY: "why"}, []),
        ([SEEN] * 18 + [UNSEEN], {KEY: "why"}, ["fewer than 95 % of the faults are seen"]),
        ([SEEN] * 19 + [UNSEEN], {}, ["not explained in survivors.toml: a.py: g: x = 2"]),
        ([SEEN], {KEY: "why"}, ["explained in survivors.toml, but there is no such survivor: a.py: g: x = 2"]),
        ([SEEN], {("b.py", "g", "x = 2"): "why"}, []),
    ],
    ids=["enough", "too few", "unexplained", "stale", "of a file that was not tried"],
)
def test_what_is_wrong_is_said(outcomes, explained, said):
    assert list(complaints(outcomes, explained)) == said


def test_every_explanation_is_of_a_file_that_is_tried_and_says_why():
    known = explanations(Path("mutation", "survivors.toml"))

    assert {file for file, _, _ in known} <= set(TESTS)
    assert all(known.values())


RUN = """
import pytest, sys, time
from mutation.run import Judge, Trial

def fault(text, apply):
    return Trial("a.py", "f", 1, text, apply)

def forever():
    while True:
        pass

def none():
    import test_it
    test_it.value = None

faults = [fault("seen", none), fault("crash", lambda: 1 / 0), fault("unseen", int)]
judge = Judge({"a.py": faults}, {"a.py": ("test_it.py",)})
status = pytest.main(["-q", "-s", "-p", "no:cacheprovider", "test_it.py"], plugins=[judge])
print([(each.text, each.is_killed) for each in judge.outcomes], int(status))
"""


def run(folder: Path, test: str) -> str:
    (folder / "test_it.py").write_text(test, encoding="utf-8")
    environment = {"PYTHONPATH": str(Path.cwd()), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", RUN], cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_fault_is_seen_where_a_test_fails_or_the_program_does(tmp_path):
    said = run(tmp_path, "value = 1\ndef test_one(): assert value == 1\ndef test_two(): pass\n")

    assert "survives: a.py:1: f: unseen\n" in said
    assert "[('seen', True), ('crash', True), ('unseen', False)] 0" in said


def test_a_test_that_fails_without_a_fault_is_named(tmp_path):
    assert "test_it.py::test_one fails without a fault." in run(tmp_path, "def test_one(): assert False\n")
