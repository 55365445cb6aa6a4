"""The page of an evaluation, from the dict that `--json` writes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mamba2.report.forecasts import forecasts_of, hits
from mamba2.report.parts import Check, Checklist, Figure, Figures, Page, Part, Section, Table, Text

Values = Mapping[str, Any]


def evaluation_page(kind: str, values: Values, fault: str | None, stretch: Values | None) -> Page:
    """The whole page.

    Args:
        kind: 'evaluation', 'walk-forward' or 'surrogate'.
        values: what it found.
        fault: why the results are not to be trusted.
        stretch: the fields of an `evaluation.stretch.Stretch` of bars that were judged.
    """
    within = {"walk-forward": "pooled", "surrogate": "evaluation"}
    judged = values[within[kind]] if kind in within else values
    sections = []
    if fault is not None:
        sections.append(Section("Not to be trusted", [Text(fault, is_wrong=True)]))
    if kind == "surrogate":
        sections.append(Section("Control", [_control(values)]))
    sections += [_target(each) for each in judged["targets"]]
    if stretch is not None:
        forecasts = forecasts_of(stretch, judged["targets"][0]["target"], "judged")
        sections.append(Section("Forecasts against what happened", [forecasts, hits(forecasts)]))
    if kind == "walk-forward":
        sections.append(Section("Folds", [_folds(values["folds"])]))
    sections += [_details(each) for each in judged["targets"]]
    passed = False if fault is not None else True if kind == "surrogate" else None
    words = ("passed", "FAILED" if kind == "surrogate" else "leak alarm")
    title = "mamba2 evaluate" if kind == "evaluation" else f"mamba2 evaluate: {kind}"
    return Page(title, passed, _summary(judged), sections, words)


def _summary(judged: Values) -> str:
    marked = ", all of them made up" if judged["synthetic"] else ""
    verdicts = " ".join(f"{each['target'].capitalize()}: the model is {each['verdict']}." for each in judged["targets"])
    return f"{verdicts} Bars from {_clock(judged['first'])} to {_clock(judged['last'])} UTC{marked}."


def _control(values: Values) -> Checklist:
    return Checklist(
        [
            Check(
                "bars in random order",
                values["passed"],
                f"MSE ratio {_text(values['ratio'])}: where there is nothing to learn, less than 1 is from the future",
            )
        ]
    )


def _target(found: Values) -> Section:
    model = found["scores"][0]
    figures = Figures(
        [
            Figure(
                _pair(model["mse_ratio"]), f"squared error of the model, that of the {found['naive']} forecast being 1"
            ),
            Figure(f"{found['bars']:,}", "bars"),
            Figure(f"{found['days']:,}", "trading days"),
        ]
    )
    columns = ("forecast", "MSE ratio", "MAE ratio", "MASE", "hits", "IC", "rank IC")
    rows = [
        [
            each["name"],
            _pair(each["mse_ratio"]),
            *(_text(each[name]["value"]) for name in ("mae_ratio", "mase")),
            _text(each["direction"]["value"], 3),
            _pair(each["ic"], 3),
            _text(each["rank_ic"]["value"], 3),
        ]
        for each in found["scores"]
    ]
    marked = [0] if found["suspected_leak"] else []
    note = (
        f"Ratios to the {found['naive']} forecast: below 1 is better. MASE: to its error on the training bars. Hits: "
        "share of moves whose sign was forecast. IC: correlation of forecast and outcome. ±: one standard error, over "
        "days."
    )
    return Section(
        f"Next to forecasts that cost nothing: {found['target']}", [figures, Table(columns, rows, marked), Text(note)]
    )


def _details(found: Values) -> Section:
    return Section(f"Quantiles and drift: {found['target']}", list(_detail_parts(found)))


def _detail_parts(found: Values) -> Iterator[Part]:
    rows = [[f"{each['level']:.0%}", _pair(each["share"], 3)] for each in found["coverage"]]
    yield Table(("quantile", "share of outcomes not above it"), rows)
    rows = [
        [f"{each['first']:,}–{each['end'] - 1:,}", _pair(each["mse_ratio"]), f"{each['bars']:,}"]
        for each in found["by_position"]
    ]
    yield Table(("bars since the segment's start", "MSE ratio", "bars"), rows)
    yield Text("A ratio that rises beyond the training window says that the state drifts.")


def _folds(folds: Sequence[Values]) -> Table:
    targets = [each["target"] for each in folds[0]["targets"]]
    rows = [
        [
            str(number),
            _clock(fold["first"]),
            _clock(fold["last"]),
            *(_pair(each["scores"][0]["mse_ratio"]) for each in fold["targets"]),
        ]
        for number, fold in enumerate(folds, 1)
    ]
    return Table(("fold", "first bar", "last bar", *(f"MSE ratio, {target}" for target in targets)), rows)


def _pair(found: Values, digits: int = 4) -> str:
    """The value and its standard error, where there is one: it takes more than one day."""
    value = _text(found["value"], digits)
    return value if found["error"] is None else f"{value} ± {_text(found['error'], digits)}"


def _text(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _clock(time: str) -> str:
    return time[:16].replace("T", " ")
