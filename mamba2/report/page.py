"""A page of plain values as one HTML file: nothing is fetched, so it opens from disk and by mail."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mamba2.errors import Mamba2Error
from mamba2.report.charts import draw
from mamba2.report.parts import Curves, Forecasts, Page


def render(page: Page) -> str:
    """The page as HTML with styles and drawings within; the same page gives the same text."""
    here = files("mamba2.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html.jinja").read_text(encoding="utf-8"))
    styles = Markup((here / "page.css").read_text(encoding="utf-8"))
    sections = [
        {"title": section.title, "parts": [_shown(part, f"s{at}p{index}") for index, part in enumerate(section.parts)]}
        for at, section in enumerate(page.sections)
    ]
    return template.render(page=page, sections=sections, styles=styles)


def write_page(path: Path, page: Page) -> None:
    """Renders the page into a file.

    Raises:
        Mamba2Error: the file cannot be written.
    """
    text = render(page)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Mamba2Error(f"{path}: the report cannot be written: {error}.") from error


def _shown(part: Any, name: str) -> dict[str, Any]:
    """A part, the name of its kind for the template, and its drawings."""
    charts = draw(part, name) if isinstance(part, Curves | Forecasts) else {}
    return {
        "kind": type(part).__name__,
        "it": part,
        "charts": {width: Markup(svg) for width, svg in charts.items()},
    }
