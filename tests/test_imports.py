"""The rooms of the package import one another in one direction."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mamba2

PACKAGE = Path(mamba2.__file__).parent

OPEN = {"errors", "shapes", "config", "disk", "__version__"}
"""Open to every room."""

ROOMS = {
    "errors": set(),
    "shape_faults": set(),
    "shapes": {"errors", "shape_faults"},
    "config": {"errors"},
    "disk": set(),
    "ops": OPEN,
    "model": OPEN | {"ops"},
    "data": OPEN,
    "train": OPEN | {"model", "data"},
    "evaluation": OPEN | {"model", "data", "train"},
    "live": OPEN | {"model", "data", "train.checkpoint"},
    "verify": OPEN | {"ops"},
    "verify.adapters.ours": OPEN | {"ops", "model"},
    "report": OPEN,
    "pytest_plugin": OPEN | {"verify"},
}
"""What each room may import, beside itself."""

FREE = {"", "smoke", "cli", "__main__"}
"""These may import every room; the package itself only where a public name is asked for."""

CLOSED = {"cli": {"__main__"}, "smoke": {"cli"}, "__main__": set()}
"""Rooms that only the named ones may import."""


def is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Modules of this package that a file imports, anywhere in it, without the leading `mamba2.`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = f"mamba2.{module}".split(".")[: len(module.split(".")) + 1 + is_package - node.level]
            base = ".".join([*(parents if node.level else []), *([node.module] if node.module else [])])
            # `from mamba2 import ops` imports a room, `from mamba2.ops import scan` a module or a name of one
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "mamba2" else [base]
        else:
            continue
        yield from (name.removeprefix("mamba2").removeprefix(".") for name in names if is_within(name, "mamba2"))


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Imports that a file of the package must not have."""
    rooms = [room for room in ROOMS if is_within(module, room)]
    room = max(rooms, key=len, default=module.partition(".")[0])
    found = []
    for target in imported(ast.parse(source), module, is_package):
        closed = next((each for each in CLOSED if is_within(target, each)), None)
        if closed is not None:
            allowed = room == closed or room in CLOSED[closed]
        elif room in FREE:
            allowed = True
        else:
            own = room.partition(".")[0]
            allowed = any(is_within(target, each) for each in (own, *ROOMS.get(room, set())))
        if not allowed:
            found.append(f"{module or 'mamba2'} imports {target or 'mamba2'}")
    return found


def files() -> Iterator[tuple[str, Path]]:
    """Every file, with its module's name without the leading `mamba2.`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip("."), path


def test_every_import_goes_the_one_way():
    found = [
        violation
        for module, path in files()
        for violation in violations(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]

    assert found == []


def test_every_file_has_its_room():
    assert [
        module
        for module, _ in files()
        if module.partition(".")[0] not in FREE and not any(is_within(module, r) for r in ROOMS)
    ] == []


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("ops.scan", "import mamba2.model.block", ["ops.scan imports model.block"]),
        ("ops.scan", "from mamba2.data.bars import Bars", ["ops.scan imports data.bars"]),
        ("ops.scan", "from mamba2 import model", ["ops.scan imports model"]),
        ("ops.scan", "from mamba2 import Forecaster", ["ops.scan imports Forecaster"]),
        ("ops.scan", "import mamba2", ["ops.scan imports mamba2"]),
        ("ops.scan", "from ..model import block", ["ops.scan imports model"]),
        ("ops.scan", "from .. import model", ["ops.scan imports model"]),
        ("ops.scan", "def f():\n    from mamba2.train import loop", ["ops.scan imports train"]),
        ("data.bars", "from mamba2.model.block import Mamba2Block", ["data.bars imports model.block"]),
        ("live.replay", "from mamba2.train.loop import fit", ["live.replay imports train.loop"]),
        ("verify.laws", "from mamba2.model.block import Mamba2Block", ["verify.laws imports model.block"]),
        ("report.page", "from mamba2.train.loop import Epoch", ["report.page imports train.loop"]),
        ("train.loop", "from mamba2.smoke import run_smoke", ["train.loop imports smoke"]),
        ("smoke", "from mamba2.cli import app", ["smoke imports cli"]),
        ("shapes", "from mamba2.config import ModelConfig", ["shapes imports config"]),
        ("", "from mamba2.cli import app", ["mamba2 imports cli"]),
    ],
)
def test_an_import_the_wrong_way_is_found(module, source, found):
    assert violations(module, source, is_package=module == "") == found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ops.scan", "import torch\nfrom mamba2.shapes import shaped\nfrom . import conv\nfrom .conv import f"),
        ("model.block", "from mamba2.ops.scan import scan_step\nfrom mamba2.config import ModelConfig"),
        ("train.checkpoint", "from mamba2 import __version__"),
        ("live.replay", "from mamba2.train.checkpoint import load_model"),
        ("verify.adapters.ours", "from mamba2.model.block import Mamba2Block\nfrom mamba2.verify import laws"),
        ("smoke", "from mamba2.report import page\nfrom mamba2.live import replay"),
        ("cli", "from mamba2.smoke import run_smoke"),
        ("cli.training", "from mamba2.cli.options import Files"),
        ("__main__", "from mamba2.cli import app"),
        ("ops.scan", "import mamba2_other"),
    ],
)
def test_an_import_the_right_way_is_no_fault(module, source):
    assert violations(module, source) == []


def test_importing_the_package_does_not_import_torch():
    command = "import sys, mamba2; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
