"""Docstrings here are plain text: what is laid out by spaces, and doctests, become code blocks on the pages."""

import re
from typing import Any

from griffe import Extension, GriffeLoader, Object

LAID_OUT = re.compile(r"^>>> |\S {3,}\S", re.MULTILINE)


class LaidOut(Extension):
    """Fences the paragraphs that markdown would run together."""

    # The signature is griffe's.
    def on_object(self, *, obj: Object, loader: GriffeLoader, **_: Any) -> None:  # noqa: ARG002
        """Called by griffe for everything that has a docstring."""
        if obj.docstring:
            obj.docstring.value = "\n\n".join(map(fenced, obj.docstring.value.split("\n\n")))


def fenced(paragraph: str) -> str:
    """The paragraph in a code block, if its layout has a meaning; one that is indented is a code block already.

    >>> fenced("a sum\\nof two")
    'a sum\\nof two'
    >>> fenced("x     taken in")
    '```text\\nx     taken in\\n```'
    """
    if paragraph.startswith("    ") or not LAID_OUT.search(paragraph):
        return paragraph
    return f"```{'pycon' if paragraph.startswith('>>>') else 'text'}\n{paragraph}\n```"
