"""The command `mamba2`: errors raised on purpose become one line and exit status 1."""

import sys

from mamba2.cli import app
from mamba2.errors import Mamba2Error


def main() -> None:
    """Runs the command line; exits with 0, with 1 for an error, with 2 for wrong usage."""
    try:
        app()
    except Mamba2Error as error:
        print(f"mamba2: {error.headline}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
