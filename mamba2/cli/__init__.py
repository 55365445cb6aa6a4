"""What can be typed: thin commands, which import what they need when they run, so that --help is quick."""

import typer

from mamba2.cli.judging import evaluate, verify
from mamba2.cli.market import bars, download, prepare
from mamba2.cli.training import check, replay, runs, smoke, train
from mamba2.cli.using import convert, live

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Mamba-2 on market bars: training, prefill and live inference are one function.",
    epilog="Begin with: mamba2 smoke. Every COMMAND --help has an example. Exit status: 0 for success, 1 for an error, "
    "which is one line, 2 for wrong usage.",
)

for _command in (smoke, check, bars, prepare, download, train, runs, replay, evaluate, live, convert, verify):
    app.command()(_command)
