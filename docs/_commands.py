"""The page of commands is made of what the command line says of itself, so that neither can lack what the other has."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARK = "<!-- every command -->"


# The signature is mkdocs'.
def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page; the one with the mark gets the commands in its place."""
    if MARK not in markdown:
        return markdown
    return markdown.replace(MARK, "\n".join(described(command_line())))


def command_line() -> Any:
    """The root command; nothing heavier than typer is imported."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import typer

    from mamba2.cli import app

    return typer.main.get_command(app)


def described(root: Any) -> Iterator[str]:
    """A section for each command: how it is typed, what it does, its arguments and options, an example."""
    for name, command in root.commands.items():
        shown = [each for each in command.params if not each.hidden]
        text, _, example = command.help.partition("Example: ")
        typed = " ".join([f"mamba2 {name}", *(_typed(each) for each in shown if not _is_option(each) or each.required)])
        optional = " [OPTIONS]" * any(_is_option(each) and not each.required for each in shown)
        yield f"## mamba2 {name}\n\n```text\n{typed}{optional}\n```\n\n{text.strip()}\n"
        yield "| | default | |\n|---|---|---|"
        yield from (f"| `{_name(each)}` | {_default(each)} | {_cell(each.help or '')} |" for each in shown)
        yield f"\n```sh\n{example.strip()}\n```\n" if example else ""


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _name(parameter: Any) -> str:
    """The option as it is typed, or the argument as the usage names it."""
    return ", ".join(parameter.opts) if _is_option(parameter) else _typed(parameter).strip("[].")


def _typed(parameter: Any) -> str:
    if _is_option(parameter):
        return f"{parameter.opts[0]} {parameter.name.upper()}"
    word = (parameter.metavar or parameter.name.upper()) + "..." * (parameter.nargs != 1)
    return word if parameter.required else f"[{word}]"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    is_nothing = parameter.default is None or parameter.default is False or parameter.default == Path()
    return "" if is_nothing else f"`{parameter.default}`"


def _cell(text: str) -> str:
    """Text that ends no cell of a table.

    >>> _cell("head | channel")
    'head \\\\| channel'
    """
    return " ".join(text.split()).replace("|", "\\|")
