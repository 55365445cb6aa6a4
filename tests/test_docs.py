"""What the pages show is run as it stands there: Python, commands, and the output printed below a block."""

import glob
import importlib
import re
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import Mamba2Config

from mamba2.cli import app
from mamba2.config import ModelConfig
from mamba2.model.interop.layout_mamba_ssm import to_mamba_ssm
from mamba2.model.language import LanguageModel

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("index", "train", "go-live", "how-it-works", "coming-from")
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)
NOT_RUN = (
    "git ",
    "python -m pip ",
    "mamba2 smoke ",
    "mamba2 convert SRC DST ",
    "export ",
    "mamba2 download ",
    "mamba2 live runs/first --live ",
    "mamba2 live runs/first --replay *0102* ",
)
"""Commands that need a network or follow one that does, that other tests run, or that name no real folder."""


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    title: str
    text: str
    shows_output: bool
    """Whether it stands right below another block, and so shows what that one prints."""


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    end = -1
    for found in BLOCK.finditer(text):
        yield Block(
            found["kind"], found["title"] or "", found["text"], end > 0 and not text[end : found.start()].strip()
        )
        end = found.end()


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(
    page: str,
    example: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Callable[..., Any],
) -> None:
    for path in example:
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks(page):
        if block.kind == "python":
            capsys.readouterr()
            exec(compile(block.text, f"{page}.md", "exec"), names)
            printed = capsys.readouterr().out
        elif block.kind == "toml" and block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "text" and block.shows_output:
            assert printed == block.text
        elif block.kind == "sh":
            for line in block.text.splitlines():
                run(line, command)


def run(line: str, command: Callable[..., Any]) -> None:
    """A command as typed, with its * filled in as a shell does."""
    if line.startswith(NOT_RUN):
        return
    program, *arguments = shlex.split(line, comments=True)
    filled = [
        each for argument in arguments for each in (sorted(glob.glob(argument)) if "*" in argument else [argument])
    ]
    outcome = command(*filled)

    assert program == "mamba2"
    assert outcome.status == 0, outcome.err


def settings_table() -> list[list[set[str]]]:
    """The names in the first table of *Coming from*, by row and column."""
    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    rows = text.partition("## Settings")[2].partition("## Calls")[0].split("|\n|")[2:]
    return [[set(re.findall(r"`(\w+)`", cell)) for cell in row.split("|")[:3]] for row in rows]


def test_the_names_of_the_settings_are_those_of_the_libraries() -> None:
    with torch.device("meta"):
        ours = to_mamba_ssm(LanguageModel(ModelConfig(d_model=32), vocabulary=8, tied=True))[0]
    known = (
        {field.name for field in fields(ModelConfig)} | {"n_heads"},
        set(Mamba2Config().to_dict()),
        set(ours) | set(ours["ssm_cfg"]),
    )
    table = settings_table()

    assert len(table) == 20
    for column, names in enumerate(known):
        assert set().union(*(row[column] for row in table)) <= names
    assert {"d_model", "layers", "dt_range"} <= set().union(*(row[0] for row in table))


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2].partition("\n\n")[0]
    listed = set(re.findall(r": ([\w/-]+\.md)", navigation))

    assert listed == {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_the_page_of_commands_is_made_of_all_of_them_in_words() -> None:
    hook = runpy.run_path(str(DOCS / "_commands.py"))
    page = hook["on_page_markdown"]((DOCS / "reference" / "commands.md").read_text(encoding="utf-8"))
    sections = dict(re.findall(r"^## mamba2 (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    commands = hook["command_line"]().commands

    assert list(sections) == list(commands)
    for name, command in commands.items():
        said = dict(re.findall(r"^\| `([^`]+)` \| .* \| (.*) \|$", sections[name], re.MULTILINE))
        wanted = {
            each.opts[0] if each.opts[0].startswith("-") else each.name for each in command.params if not each.hidden
        }
        assert len(said) == len(wanted)
        assert {option for option in wanted if option.startswith("-")} <= set(said)
        assert all(said.values()), name
        assert f"```sh\nmamba2 {name}" in sections[name]
    assert "--gateway" not in page


def test_other_pages_are_left_as_they_are() -> None:
    hook = runpy.run_path(str(DOCS / "_commands.py"))

    assert hook["on_page_markdown"]("# A page") == "# A page"


def test_every_command_is_a_call_that_is_there() -> None:
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8").partition("## The same in Python")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    calls = [name for row in rows.values() for name in re.findall(r"`(mamba2\.[\w.]+)`", row)]

    assert sorted(rows) == sorted(str(command.callback.__name__) for command in app.registered_commands)
    assert len(calls) >= len(rows)
    for module, _, name in (call.rpartition(".") for call in calls):
        assert getattr(importlib.import_module(module), name).__doc__
