"""The page of verdicts, from the values that `mamba2 verify --json` writes."""

from typing import Any

from mamba2.report.flow import Flow
from mamba2.report.page import render
from mamba2.report.parts import Code, Figures, Page, Text
from mamba2.report.verify_page import verify_page
from mamba2.verify.case import Case

SHAPE = (
    "scan_chunked: axis 'batch' is 1 in B (1, 3, 1, 1) but 2 in x (2, 3, 1, 1).\n"
    "  B: Float (batch time group state)\n"
    "    axis   expected    got\n"
    "    batch  2 (from x)  1 <--\n"
    "    time   3 (from x)  3\n"
    "  hint: the batch is missing: expand B over it."
)


def verdict(law: int, outcome: str = "holds", implementation: str = "Mine", **changes: Any) -> dict[str, Any]:
    case = Case(batch=2, time=3) if outcome == "broken" else None
    found: dict[str, Any] = {
        "implementation": implementation,
        "law": f"L{law}",
        "name": f"law_{law}_holds",
        "statement": f"Law {law}.",
        "outcome": outcome,
        "why": {"holds": "", "broken": "outputs: error 1.8e+00 is above 1e-10.", "not claimed": "not claimed: step"}[
            outcome
        ],
        "raised": None,
        "counterexample": str(case) if case else None,
        "in_words": case.in_words if case else None,
        "sizes": case.sizes if case else None,
        "test": "def test(): ...\n" if case else None,
        "error": 1.8 if case else None,
        "allowed": 1e-10 if case else None,
        "examples": 12,
    }
    return found | changes


def shape_error(law: int, text: str = SHAPE, **changes: Any) -> dict[str, Any]:
    raised = {"why": f"raised ShapeError: {text.partition(chr(10))[0]}", "raised": f"ShapeError: {text}"}
    return verdict(law, "broken", **raised, error=None, allowed=None, **changes)


def parts(page: Page, at: int) -> list[Any]:
    return list(page.sections[at].parts)


def flows(page: Page) -> list[Flow]:
    return [part for section in page.sections for part in section.parts if isinstance(part, Flow)]


def test_all_laws_hold_where_none_is_broken() -> None:
    page = verify_page("Mine", [verdict(1), verdict(2, "not claimed")])
    table = parts(page, 0)[0]

    assert (page.passed, page.summary) == (True, "1 laws hold, 0 are broken, 1 are not claimed.")
    assert table.rows == [["L1 law 1 holds", "holds", "12 cases"], ["L2 law 2 holds", "–", "not claimed: step"]]
    assert table.marked == []
    assert '<span class="result">holds</span>' in render(page)


def test_a_broken_law_has_its_counterexample_error_and_test() -> None:
    page = verify_page("Mine", [verdict(1), verdict(2, "broken")])
    table = parts(page, 0)[0]

    assert page.passed is False
    assert table.rows[1] == ["L2 law 2 holds", "BROKEN", "error 1.8e+00 > 1e-10"]
    assert table.marked == [1]
    assert page.sections[1].title == "L2 of Mine: law 2 holds"
    statement, words, why, figures, _, test = parts(page, 1)
    assert statement == Text("Law 2.")
    assert words == Text("The smallest counterexample found: 2 sequences of 3 steps; all else is 1 or left out.")
    assert why == Text("outputs: error 1.8e+00 is above 1e-10.", is_wrong=True)
    assert isinstance(figures, Figures)
    assert [figure.value for figure in figures.figures] == ["1.8e+00", "1e-10"]
    assert test == Code("def test(): ...\n")
    assert "<pre>def test(): ...\n</pre>" in render(page)


def test_several_implementations_stand_side_by_side_by_the_number_of_the_law() -> None:
    found = [verdict(1, implementation="a.one"), verdict(10, "broken", "a.one"), verdict(2, implementation="a.two")]
    table = parts(verify_page("a", found), 0)[0]

    assert table.columns == ("law", "one", "two")
    assert table.rows == [
        ["L1 law 1 holds", "holds", ""],
        ["L2 law 2 holds", "", "holds"],
        ["L10 law 10 holds", "BROKEN", ""],
    ]
    assert table.marked == [2]


def test_a_shape_error_is_drawn_once_with_function_and_axis_in_red() -> None:
    page = verify_page("Mine", [shape_error(1), shape_error(2)])
    (flow,) = flows(page)
    boxes = [box for group in flow.groups for box in group.boxes]
    wrong = [
        (arrow.name, axis.name, axis.size, axis.got) for box in boxes for arrow in box.arrows for axis in arrow.axes
    ]

    assert [box.name for box in boxes if box.fault] == ["scan_chunked"]
    assert [each for each in wrong if each[3]] == [("B", "batch", 2, "1")]
    assert parts(page, 0)[0].rows[0][2] == "raised ShapeError"
    assert "Hint: the batch is missing: expand B over it." in render(page)


def test_a_function_of_their_own_stands_alone_in_red() -> None:
    (flow,) = flows(verify_page("Mine", [shape_error(1, "my_scan: B must have 4 axes; got 3: (2, 3, 1).")]))
    (box,) = flow.groups[0].boxes

    assert box.name == "my_scan"
    assert box.fault is not None
    assert box.fault.sentence == "B must have 4 axes; got 3: (2, 3, 1)."


def test_another_error_is_not_taken_for_a_shape_error() -> None:
    raised = "RuntimeError: scan_step: axis 'state' is 8 in C (2, 8) but 16 in B (2, 16)."

    assert flows(verify_page("Mine", [verdict(1, "broken", raised=raised, error=None)])) == []
