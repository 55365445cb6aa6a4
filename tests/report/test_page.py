"""Pages of plain values: one file, the same each time, with everything on it and nothing to fetch."""

import re
from pathlib import Path

import pytest

from mamba2.errors import Mamba2Error
from mamba2.report.page import render, write_page
from mamba2.report.parts import (
    Check,
    Checklist,
    Curve,
    Curves,
    Figure,
    Figures,
    Forecasts,
    Page,
    Part,
    Section,
    Table,
    Text,
)

MINUTE = 60 * 10**9
NOON = 19_724 * 24 * 60 * MINUTE + 12 * 60 * MINUTE
"""2024-01-02 12:00 UTC."""

CURVES = Curves("epochs", "loss", [Curve("a", [1, 2], [3, 4], "thick"), Curve("b", [0], [3.5], "level")], "below")
FORECASTS = Forecasts(
    time=[NOON, NOON + MINUTE, NOON + 3 * MINUTE],
    starts=[False, False, True],
    actual=[0.1, None, -0.3],
    levels=[0.1, 0.5, 0.9],
    quantiles=[[-1, -1, -1], [0, 0, 0], [1, 1, 1]],
    y_label="return",
)


def page(*parts: Part, passed: bool | None = True) -> Page:
    return Page("mamba2 test", passed, "a summary", [Section("A section", parts)])


@pytest.fixture(scope="module")
def drawn() -> str:
    """A page with both kinds of charts."""
    return render(page(CURVES, FORECASTS))


def test_the_same_page_gives_the_same_text(drawn: str) -> None:
    assert render(page(CURVES, FORECASTS)) == drawn


def test_nothing_is_fetched(drawn: str) -> None:
    addresses = set(re.findall(r"https?://[^\"' )]+", drawn))

    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"<(script|link|img|iframe)|@import|src=|url\((?!#)", drawn)


def test_every_id_is_there_once_and_every_reference_has_its_target(drawn: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', drawn)
    references = re.findall(r'(?:href="|url\()#([^")]+)', drawn)

    assert len(ids) == len(set(ids))
    assert set(references) <= set(ids)


def test_charts_take_the_colours_of_the_page(drawn: str) -> None:
    svgs = re.findall(r"<svg.*?</svg>", drawn, re.DOTALL)

    assert len(svgs) == 4  # each wide and narrow
    assert not any(re.search(r"#[0-9a-fA-F]{6}\b", svg) for svg in svgs)
    assert set(re.findall(r"var\((--\w+)\)", "".join(svgs))) == {"--ink", "--faint", "--first", "--second", "--wrong"}


def test_a_segment_start_is_marked_and_named(drawn: str) -> None:
    svg = re.findall(r"<svg.*?</svg>", drawn, re.DOTALL)[2]

    assert "a segment begins" in svg
    assert "12:03" in svg


@pytest.mark.parametrize(("passed", "word"), [(True, "passed"), (False, "failed")])
def test_the_verdict_stands_at_the_top(passed: bool, word: str) -> None:
    assert f'<span class="result">{word}</span>' in render(page(passed=passed))


def test_a_page_that_judges_nothing_has_no_verdict() -> None:
    assert 'class="result"' not in render(page(passed=None))


def test_a_checklist_shows_headlines_and_keeps_the_rest() -> None:
    checks = [
        Check("first", True, "fine", 1.5),
        Check("second", False, "bad\n  all", 0),
        Check("third", None, "not run", 0),
    ]
    html = render(page(Checklist(checks)))

    assert re.findall(r'<li class="(\w+)">', html) == ["good", "bad", "idle"]
    assert re.findall(r'<span class="seconds">(.*?)</span>', html) == ["1.50 s", "0.00 s", ""]
    assert "<pre>bad\n  all</pre>" in html


def test_texts_are_escaped() -> None:
    assert "<b>&" not in render(page(Text("<b>&"), Figures([Figure("<b>&", "<b>&")]), Table(["<b>&"], [["<b>&"]])))


def test_marked_rows_are_red() -> None:
    html = render(page(Table(["name", "value"], [["a", "1"], ["b", "2"]], marked=[1])))

    assert '<tr class="wrong"><td>b</td><td>2</td></tr>' in html
    assert "<tr><td>a</td><td>1</td></tr>" in html


def test_a_page_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(Mamba2Error, match=r"report\.html: the report cannot be written: "):
        write_page(tmp_path / "missing" / "report.html", page())
