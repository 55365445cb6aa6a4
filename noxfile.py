"""The one way in: `nox` lints, checks types, tests and runs the smoke test; `nox -l` lists what else there is."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
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


@nox.session(default=False)
def lowest(session: nox.Session) -> None:
    """Run the tests that need no other library with the lowest versions that pyproject.toml allows, but for torch's."""
    pins = Path(session.virtualenv.location, "lowest.txt")  # not in a folder that would hold the tests' files too
    pins.write_text("\n".join(lowest_versions(PROJECT["project"]["dependencies"])), encoding="utf-8")
    locked = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    torch_and_pytest = [line for line in locked if line.startswith(("torch==", "pytest==", "pytest-timeout=="))]
    session.install("-e", ".", *torch_and_pytest, "-c", str(pins.absolute()))
    session.run("python", "-m", "pytest", *(f"--ignore={each}" for each in NEED_MORE), *session.posargs)


NEED_MORE = (
    "mamba2/verify/adapters",
    "tests/benchmarks",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "tests/model/test_interop.py",
    "tests/train/test_board.py",
    "tests/verify/test_conformance.py",
    "tests/verify/test_niverel_adapter.py",
    "tests/verify/test_prove_your_ssm.py",
    "tests/verify/test_transformers_adapter.py",
)
"""Tests of what this package does beside other libraries."""


def lowest_versions(dependencies: list[str]) -> list[str]:
    """The lower bounds as pins; torch has wheels without CUDA for its newest version only."""
    bounded = (each.split(">=") for each in dependencies if ">=" in each)
    return [f"{name}=={version}" for name, version in bounded if name != "torch"]


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


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure speed, memory and accuracy beside the bare matrix products and transformers; no time is a failure."""
    session.run(shared_python(session, "test"), "-m", "benchmarks", *session.posargs, external=True)


@nox.session(venv_backend="none", default=False)
def learning(session: nox.Session) -> None:
    """Train on planted signals and compare with what can be reached: a few minutes; an error when a goal is missed."""
    session.run(shared_python(session), "benchmarks/learning.py", external=True)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Judge what was once shipped broken, and write the table to docs/mutants.md; an error when a law lets one pass."""
    session.run(shared_python(session, "test"), "tests/verify/mutants.py", "docs/mutants.md", external=True)


@nox.session(venv_backend="none", default=False)
def conformance(session: nox.Session) -> None:
    """Judge released versions of transformers, from a package index: known faults must be found, and nothing else."""
    session.run(shared_python(session, "test"), "conformance/run.py", *session.posargs, external=True)


@nox.session(venv_backend="none", default=False)
def mutation(session: nox.Session) -> None:
    """Put faults into the maths, the block and the features: tests must see 95 %, and the rest be explained."""
    session.run(shared_python(session, "test"), "-m", "mutation", *session.posargs, external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the pages into build/site; a warning is an error."""
    session.install(*nox.project.dependency_groups(PROJECT, "docs"), "-c", "constraints.txt")
    session.run("python", "-m", "doctest", "docs/_docstrings.py", "docs/_commands.py")
    session.run("mkdocs", "build", "--strict", "--site-dir", "build/site", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build wheel and sdist; install the wheel into a fresh environment and run it outside the source tree."""
    session.install(*nox.project.dependency_groups(PROJECT, "build"), "-c", "constraints.txt")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--no-isolation", silent=True)
    (wheel,) = Path("dist").glob("*.whl")
    faults = wheel_faults(wheel)
    if faults:
        session.error(f"{wheel}: {', '.join(faults)}")

    with tempfile.TemporaryDirectory() as away:
        session.run_install(sys.executable, "-m", "virtualenv", f"{away}/env", external=True, silent=True)
        scripts = Path(away, "env", "Scripts" if os.name == "nt" else "bin")
        install = ["-m", "pip", "install", "--disable-pip-version-check", str(wheel), "-c", "constraints.txt"]
        session.run_install(str(scripts / "python"), *install, external=True, silent=True)
        with session.chdir(away):
            for command in (("smoke", "--out", "smoke"), ("verify", "ours", "--examples", "5")):
                session.run(str(scripts / "mamba2"), *command, external=True)


def wheel_faults(wheel: Path) -> list[str]:
    """What a wheel lacks, and what it should not have."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    needed = ("mamba2/py.typed", "mamba2/report/page.css", "mamba2/report/page.html.jinja")
    folders = {name.partition("/")[0] for name in names}
    strays = sorted(name for name in folders if name != "mamba2" and not name.endswith(".dist-info"))
    return [f"{name} is missing" for name in needed if name not in names] + [f"{name} is no part" for name in strays]


@nox.session(venv_backend="none", default=False)
def faults(session: nox.Session) -> None:
    """Kill training at 200 moments, fill its disk, make it read-only, flip bytes: counts are printed, 0 may be lost."""
    options = ("-s", "--timeout", "900", *session.posargs)
    session.env["MAMBA2_FAULTS"] = "200"
    session.run(shared_python(session, "test"), "-m", "pytest", "tests/train/test_faults.py", *options, external=True)


@nox.session(venv_backend="none", default=False)
def distributed(session: nox.Session) -> None:
    """Train with 2 and 3 processes as with one, and through torchrun's restart of a killed one."""
    options = ("-s", "--timeout", "600", *session.posargs)
    session.env["MAMBA2_DISTRIBUTED"] = "full"
    python = shared_python(session, "test")
    session.run(python, "-m", "pytest", "tests/train/test_distributed.py", *options, external=True)


@nox.session(venv_backend="none", default=False)
def fuzz(session: nox.Session) -> None:
    """Read 10,000 damaged files of each kind and version: an error of ours, or what the bytes still say."""
    options = ("property_tests/test_dbn_damage.py", "--timeout", "3600", *session.posargs)
    examples = {"MAMBA2_FUZZ_EXAMPLES": "10000"}
    session.run(shared_python(session, "test"), "-m", "pytest", *options, env=examples, external=True)


def has_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU, asked before anything is installed."""
    if Path("/dev/nvidia0").exists():
        return True
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        return False
    listed = subprocess.run([nvidia_smi, "-L"], capture_output=True, text=True, check=False)
    return listed.returncode == 0 and "GPU" in listed.stdout
