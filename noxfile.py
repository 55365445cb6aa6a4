"""The one way in: `nox` lints, checks types, tests and runs the smoke test; `nox -l` lists what else there is."""

import os
import shutil
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "typecheck", "tests", "smoke"]

PROJECT = nox.project.load_toml("pyproject.toml")
SHARED = ".nox/shared"
"""One environment for all that need the package: torch is heavy."""


def install(session: nox.Session, *groups: str, package: bool = True) -> None:
    """Installs the package and dependency groups, at the versions of constraints.txt."""
    needed = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install(*(["-e", "."] if package else []), *needed, "-c", "constraints.txt", silent=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    install(session, "lint", package=False)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(venv_location=SHARED)
def typecheck(session: nox.Session) -> None:
    """Check types with mypy and shapes with torchtyc."""
    install(session, "typecheck", "test")
    session.run("mypy")
    python = str(Path(session.bin, "python").absolute())
    session.run("torchtyc", "check", "--severity", "warning", "--python", python, "mamba2/ops")


@nox.session(venv_location=SHARED)
def tests(session: nox.Session) -> None:
    """Run examples, properties and doctests; arguments after -- go to pytest."""
    install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session(venv_location=SHARED)
def smoke(session: nox.Session) -> None:
    """Train three epochs on the CPU, bars to checkpoint."""
    install(session)
    session.run("python", "-m", "mamba2", "smoke", *session.posargs)


@nox.session(venv_location=SHARED)
def cuda_smoke(session: nox.Session) -> None:
    """The same on CUDA; skipped without a GPU, unless MAMBA2_REQUIRE_CUDA=1 makes that an error."""
    if not has_gpu():
        reason = "no NVIDIA GPU: nvidia-smi lists none and there is no /dev/nvidia0"
        if os.environ.get("MAMBA2_REQUIRE_CUDA") == "1":
            session.error(f"{reason}, but MAMBA2_REQUIRE_CUDA=1")
        session.skip(reason)
    install(session)
    # A GPU that this torch cannot use fails the smoke test's second check: an error, no skip.
    session.run("python", "-m", "mamba2", "smoke", "--device", "cuda", "--out", "runs/cuda_smoke", *session.posargs)


def has_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU, asked before anything is installed."""
    if Path("/dev/nvidia0").exists():
        return True
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        return False
    listed = subprocess.run([nvidia_smi, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout
