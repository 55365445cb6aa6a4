"""What a terminal, a pipe and NO_COLOR are sent."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = min((Path(__file__).parent.parent / "fixtures" / "6E.FUT").iterdir())
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")


def environment(**variables: str) -> dict[str, str]:
    """That of this process, without what rules colours."""
    rules = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    # typer shows help in colours on some CI machines even into a pipe
    rules += ("GITHUB_ACTIONS", "PY_COLORS")
    kept = {name: value for name, value in os.environ.items() if name not in rules}
    return kept | {"TERM": "xterm-256color", "COLUMNS": "80"} | variables


def piped(*arguments: str) -> str:
    """Both streams of a command that writes into pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "mamba2", *arguments], capture_output=True, text=True, check=False, env=environment()
    )
    return done.stdout + done.stderr


def on_terminal(*arguments: str, **variables: str) -> str:
    """What a command writes to a terminal."""
    pty = pytest.importorskip("pty", reason="no terminals on this system")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mamba2", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**variables)):
        os.close(theirs)
        written = []
        try:
            while part := os.read(ours, 65536):
                written.append(part)
        except OSError:  # how Linux says that the other side was closed
            pass
    os.close(ours)
    return b"".join(written).decode()


@pytest.mark.parametrize("arguments", [["--help"], ["bars", str(EXAMPLE)], ["bars", "missing.dbn"], ["nonsense"]])
def test_a_pipe_gets_plain_text(arguments: list[str]) -> None:
    assert "\x1b" not in piped(*arguments)


@pytest.mark.parametrize("arguments", [["--help"], ["bars", str(EXAMPLE)]])
def test_no_color_is_respected_on_a_terminal(arguments: list[str]) -> None:
    written = on_terminal(*arguments, NO_COLOR="1")

    assert "6EH4" in written or "smoke" in written
    assert not COLOUR.search(written)


def test_a_terminal_gets_colours() -> None:
    assert COLOUR.search(on_terminal("--help"))


def test_help_and_tables_fit_80_columns() -> None:
    lines = [*piped("--help").splitlines(), *piped("bars", str(EXAMPLE)).splitlines()[:8]]

    assert max(map(len, lines)) <= 80


def test_help_says_how_to_begin_and_what_the_exit_status_means() -> None:
    text = " ".join(piped("--help").split())

    assert "Begin with: mamba2 smoke." in text
    assert "Exit status: 0 for success, 1 for an error, which is one line, 2 for wrong usage." in text


def test_training_shows_loss_speed_and_time_left_in_80_columns(tmp_path: Path) -> None:
    config = tmp_path / "tiny.toml"
    config.write_text("[model]\nd_model = 16\nlayers = 1\nheaddim = 16\nd_state = 4\n[train]\nepochs = 1\n")
    options = ("--symbol", "6EH4", "--config", str(config), "--out", str(tmp_path / "run"), "--no-validation")
    written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_terminal("train", str(EXAMPLE), *options))
    bars = [line for line in re.split(r"[\r\n]+", written) if "bars/s" in line]

    assert bars
    assert all(re.search(r"1/1 loss \d\.\d{4}  [\d,]+ bars/s \S+$", line.rstrip()) for line in bars)
    assert max(map(len, bars)) <= 80
