"""The one way in: `nox` lints, checks types, tests and runs the smoke test; `nox -l` lists what else there is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "typecheck", "tests", "smoke"]

PROJECT = nox.project.load_toml("pyproject.toml")
SHARED = Path(".nox", "shared")


def shared_python(session: nox.Session, *groups: str) -> str:
    """The Python of one environment for all sessions that need the package and these groups: torch is heavy."""
    python = str((SHARED / ("Scripts" if os.name == "nt" else "bin") / "python").absolute())
    if not SHARED.exists():
        session.run_install(sys.executable, "-m", "virtualenv", str(SHARED), external=True, silent=True)
    needed = ["-e", ".", *(nox.project.dependency_groups(PROJECT, *groups) if groups else ())]
    install = [python, "-m", "pip", "install", "--disable-pip-version-check", *needed, "-c", "constraints.txt"]
    session.run_install(*install, external=True, silent=True)
    return python


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*nox.project.dependency_groups(PROJECT, "lint"), "-c", "constraints.txt")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(venv_backend="none")
def typecheck(session: nox.Session) -> None:
    """Check types with mypy and shapes with torchtyc."""
    python = shared_python(session, "typecheck", "test")
    session.run(python, "-m", "mypy", external=True)
    torchtyc = str(Path(python).with_name("torchtyc"))
    session.run(torchtyc, "check", "--severity", "warning", "--python", python, "mamba2/ops", external=True)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run examples, properties and doctests; arguments after -- go to pytest."""
    session.run(shared_python(session, "test"), "-m", "pytest", *session.posargs, external=True)


@nox.session(venv_backend="none")
def smoke(session: nox.Session) -> None:
    """Train three epochs on the CPU, bars to checkpoint."""
    session.run(shared_python(session), "-m", "mamba2", "smoke", *session.posargs, external=True)


@nox.session(venv_backend="none")
def cuda_smoke(session: nox.Session) -> None:
    """The same on CUDA; skipped without a GPU, unless MAMBA2_REQUIRE_CUDA=1 makes that an error."""
    if not has_gpu():
        reason = "no NVIDIA GPU: nvidia-smi lists none and there is no /dev/nvidia0"
        if os.environ.get("MAMBA2_REQUIRE_CUDA") == "1":
            session.error(f"{reason}, but MAMBA2_REQUIRE_CUDA=1")
        session.skip(reason)
    # A GPU that this torch cannot use fails the smoke test's second check: an error, no skip.
    options = ("--device", "cuda", "--out", "runs/cuda_smoke", *session.posargs)
    session.run(shared_python(session), "-m", "mamba2", "smoke", *options, external=True)


def has_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU, asked before anything is installed."""
    if Path("/dev/nvidia0").exists():
        return True
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        return False
    listed = subprocess.run([nvidia_smi, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout
