"""The page of verdicts over the laws, from the dicts that `mamba2 verify --json` writes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mamba2.report.faults import ShapeFault, read_fault
from mamba2.report.flow import Box, Flow, Group, mark
from mamba2.report.model_flow import block_flow
from mamba2.report.parts import Code, Figure, Figures, Page, Part, Section, Table, Text

Verdict = Mapping[str, Any]

_LEGEND = "–: not claimed, so not asked. Empty: the law has no content there."


def verify_page(target: str, verdicts: Sequence[Verdict]) -> Page:
    """The whole page: laws by implementation, then each broken law on its own."""
    counts = {outcome: sum(each["outcome"] == outcome for each in verdicts) for outcome in ("holds", "broken")}
    summary = (
        f"{counts['holds']} laws hold, {counts['broken']} are broken, "
        f"{len(verdicts) - sum(counts.values())} are not claimed."
    )
    broken = [each for each in verdicts if each["outcome"] == "broken"]
    faults = list(map(_fault, broken))
    details = [
        Section(_title(each), list(_parts(each, fault, is_drawn=fault in faults[:at])))
        for at, (each, fault) in enumerate(zip(broken, faults, strict=True))
    ]
    sections = [Section("Laws", [_laws(verdicts), Text(_LEGEND)]), *details]
    return Page(f"mamba2 verify: {target}", not broken, summary, sections, words=("holds", "broken"))


def _laws(verdicts: Sequence[Verdict]) -> Table:
    """A row a law; a column an implementation, or for a single one what there is to say."""
    targets = list(dict.fromkeys(each["implementation"] for each in verdicts))
    by_law: dict[str, dict[str, Verdict]] = {}
    for each in sorted(verdicts, key=lambda each: int(each["law"][1:])):
        by_law.setdefault(f"{each['law']} {_name(each)}", {})[each["implementation"]] = each
    marked = [at for at, row in enumerate(by_law.values()) if any(each["outcome"] == "broken" for each in row.values())]
    if len(targets) > 1:
        rows = [[law, *(_cell(row.get(each)) for each in targets)] for law, row in by_law.items()]
        return Table(("law", *(target.rpartition(".")[2].replace("_", " ") for target in targets)), rows, marked)
    rows = [[law, _cell(each), _in_short(each)] for law, row in by_law.items() for each in row.values()]
    return Table(("law", "verdict", "in short"), rows, marked)


def _cell(verdict: Verdict | None) -> str:
    return "" if verdict is None else {"broken": "BROKEN", "not claimed": "–"}.get(verdict["outcome"], "holds")


def _in_short(verdict: Verdict) -> str:
    if verdict["outcome"] == "holds":
        return f"{verdict['examples']:,} cases"
    if verdict["error"] is not None:
        return f"error {verdict['error']:.1e} > {verdict['allowed']:.0e}"
    why = str(verdict["why"])
    return why.partition(": ")[0] if verdict["raised"] else why


def _title(verdict: Verdict) -> str:
    return f"{verdict['law']} of {verdict['implementation']}: {_name(verdict)}"


def _name(verdict: Verdict) -> str:
    return str(verdict["name"]).replace("_", " ")


def _parts(verdict: Verdict, fault: ShapeFault | None, *, is_drawn: bool) -> Iterator[Part]:
    yield Text(verdict["statement"])
    yield Text(f"The smallest counterexample found: {verdict['in_words']}.")
    yield Text(verdict["why"], is_wrong=True)
    if verdict["error"] is not None:
        error = Figure(f"{verdict['error']:.1e}", "error, relative to the largest value")
        yield Figures([error, Figure(f"{verdict['allowed']:.0e}", "is allowed")])
    if fault is not None and not is_drawn:
        yield _flow(verdict, fault)
    yield Text("This test fails as long as the law is broken:")
    yield Code(verdict["test"])


def _fault(verdict: Verdict) -> ShapeFault | None:
    raised = verdict["raised"] or ""
    return read_fault(raised) if raised.startswith("ShapeError: ") else None


def _flow(verdict: Verdict, fault: ShapeFault) -> Flow:
    """The block at the counterexample's sizes, what failed in red; a function that it does not have stands alone."""
    block = block_flow(verdict["sizes"])
    marked = mark(block, fault)
    if marked != block:
        return marked
    return Flow([Group(verdict["implementation"], [Box(fault.function, [], "", fault=fault)])], [])
