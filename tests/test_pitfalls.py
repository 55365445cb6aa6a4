"""The list of pitfalls names a test for each, and the test is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = re.findall(
    r"^\| (\d+) \|.*\| (.+) \|$", (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_all_forty_are_listed() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 41))


def test_every_test_named_exists() -> None:
    named = [re.fullmatch(r"`(.+)::(.+)`", last) for _, last in ROWS]
    missing = [
        match[0] for match in named if match and f"def {match[2]}(" not in (ROOT / match[1]).read_text(encoding="utf-8")
    ]

    assert missing == []
    assert sum(match is None for match in named) == 2  # nothing to test: 5 and 33
