"""What a person sees of verdicts: a table that grows on a terminal, lines elsewhere, and below it what is broken."""

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mamba2.verify.runner import Verdict

STYLES = {"holds": "green", "broken": "bold red", "not claimed": "dim"}


def show(verdicts: Iterator[Verdict], console: Console, *, many: bool) -> list[Verdict]:
    """Shows verdicts as they come, then the broken laws in detail; `many` implementations have a column."""
    seen: list[Verdict] = []
    if console.is_terminal:
        with Live(_table(seen, many), console=console, auto_refresh=False, vertical_overflow="visible") as live:
            for verdict in verdicts:
                seen.append(verdict)
                live.update(_table(seen, many), refresh=True)
    else:
        for verdict in verdicts:
            seen.append(verdict)
            console.print("  ".join(_cells(verdict, many)).rstrip(), highlight=False, markup=False)
    for verdict in seen:
        if verdict.outcome == "broken":
            console.print(details(verdict), highlight=False, markup=False)
    counts = {outcome: sum(each.outcome == outcome for each in seen) for outcome in STYLES}
    console.print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), highlight=False)
    return seen


def details(verdict: Verdict) -> str:
    """A broken law: its statement, the smallest counterexample, what is wrong, and a test to paste."""
    return (
        f"\n{verdict.law.id} {verdict.target}: {verdict.law.statement}\n"
        f"  smallest counterexample: {verdict.case}\n"
        f"  {verdict.why}\n\n{_indented(verdict.test)}"
    )


def _table(verdicts: list[Verdict], many: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("law", "", *(["implementation"] if many else []), "verdict", ""):
        table.add_column(column, no_wrap=column in ("law", "verdict"))
    for verdict in verdicts:
        *cells, outcome, why = _cells(verdict, many)
        table.add_row(*cells, Text(outcome.strip(), STYLES[verdict.outcome]), Text(why, overflow="ellipsis"))
    return table


def _cells(verdict: Verdict, many: bool) -> list[str]:
    """Law, its name, perhaps the implementation, verdict, and what there is to say about it."""
    said = {
        "holds": f"{verdict.examples} cases, {verdict.seconds:.1f} s",
        "broken": _in_short(verdict),
        "not claimed": verdict.why.removeprefix("not claimed: "),
    }[verdict.outcome]
    name = verdict.law.name.replace("_", " ")
    target = [f"{verdict.target:<20}"] if many else []
    return [f"{verdict.law.id:<3}", f"{name:<46}", *target, f"{verdict.outcome:<11}", said]


def _in_short(verdict: Verdict) -> str:
    if verdict.error is None:
        return f"{verdict.case}"
    return f"{verdict.case}  error {verdict.error:.1e} > {verdict.allowed:.0e}"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
